"""A database of a college, which knows no medicine, and statements over it as models write them for either engine.

The engine is the oracle: what it runs should be answered, and as it answers.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_TABLES = (
    "CREATE TABLE department (dept_name VARCHAR(20) PRIMARY KEY, building VARCHAR(15), budget DECIMAL(12,2))",
    "CREATE TABLE course (course_id VARCHAR(8) PRIMARY KEY, title VARCHAR(50), dept_name VARCHAR(20), credits INT)",
    "CREATE TABLE instructor (id INT PRIMARY KEY, name VARCHAR(20), dept_name VARCHAR(20), salary DECIMAL(8,2))",
    "CREATE TABLE student (id INT PRIMARY KEY, name VARCHAR(20), dept_name VARCHAR(20), tot_cred INT, birth DATE)",
    "CREATE TABLE takes (id INT, course_id VARCHAR(8), semester VARCHAR(6), `year` INT, grade VARCHAR(2))",
    "CREATE TABLE `order` (`key` INT PRIMARY KEY, `group` VARCHAR(10), `rank` INT)",
)
_DEPARTMENTS = ("Biology", "Comp. Sci.", "Physics", "History", "Math")


def make_college(path: Path) -> Path:
    """Write the database to `path`."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in _TABLES:
            connection.execute(table)
        connection.executemany(
            "INSERT INTO department VALUES (?, ?, ?)",
            [(name, f"Hall {n % 3}", 50000.5 + 1000 * n) for n, name in enumerate(_DEPARTMENTS)],
        )
        connection.executemany(
            "INSERT INTO course VALUES (?, ?, ?, ?)",
            [(f"C-{n}", f"Course {n}", _DEPARTMENTS[n % 5], 2 + n % 3) for n in range(1, 21)],
        )
        connection.executemany(
            "INSERT INTO instructor VALUES (?, ?, ?, ?)",
            [(n, f"Teacher {n}", _DEPARTMENTS[n % 4], 60000 + 1234.25 * n) for n in range(1, 13)],
        )
        connection.executemany(
            "INSERT INTO student VALUES (?, ?, ?, ?, ?)",
            [
                (
                    n,
                    f"Student {n}",
                    _DEPARTMENTS[n % 5] if n % 7 else None,
                    3 * n,
                    f"{1998 + n % 5}-0{1 + n % 9}-1{n % 9}",
                )
                for n in range(1, 41)
            ],
        )
        connection.executemany(
            "INSERT INTO takes VALUES (?, ?, ?, ?, ?)",
            [
                (1 + n % 40, f"C-{1 + n % 20}", ("Fall", "Spring")[n % 2], 2018 + n % 4, ("A", "B", "C", None)[n % 4])
                for n in range(100)
            ],
        )
        connection.executemany("INSERT INTO `order` VALUES (?, ?, ?)", [(n, f"g{n % 2}", n * n) for n in range(1, 6)])
    return path


STATEMENTS = [
    "SELECT name FROM instructor WHERE dept_name = 'Physics' AND salary > 62000 ORDER BY name",
    "SELECT count(*), dept_name FROM instructor GROUP BY dept_name ORDER BY dept_name",
    "SELECT T1.name, T2.building FROM instructor AS T1 JOIN department AS T2 ON T1.dept_name = T2.dept_name "
    "WHERE T1.id < 4 ORDER BY T1.id",
    "SELECT dept_name, avg(salary) FROM instructor GROUP BY dept_name HAVING avg(salary) > 65000 ORDER BY 1",
    "SELECT dept_name FROM department WHERE budget = (SELECT max(budget) FROM department)",
    "SELECT DISTINCT T2.title FROM takes AS T1 JOIN course AS T2 ON T1.course_id = T2.course_id JOIN student AS "
    "T3 ON T1.id = T3.id WHERE T3.name = 'Student 5' ORDER BY T2.title",
    "SELECT name FROM student WHERE id NOT IN (SELECT id FROM takes WHERE grade = 'A') ORDER BY id LIMIT 5",
    "SELECT course_id FROM takes WHERE semester = 'Fall' AND year = 2018 INTERSECT SELECT course_id FROM takes "
    "WHERE semester = 'Spring' AND year = 2019",
    "SELECT course_id FROM course EXCEPT SELECT course_id FROM takes WHERE year = 2020 ORDER BY course_id",
    "SELECT title FROM course WHERE course_id IN (SELECT course_id FROM takes GROUP BY course_id HAVING count(*) "
    ">= 5) ORDER BY title",
    "SELECT s.name, COUNT(t.course_id) AS n FROM student s LEFT JOIN takes t ON s.id = t.id GROUP BY s.id, "
    "s.name ORDER BY n DESC, s.name LIMIT 5",
    "SELECT building, SUM(budget) AS total FROM department GROUP BY building ORDER BY total DESC",
    "SELECT AVG(tot_cred), MIN(tot_cred), MAX(tot_cred) FROM student WHERE dept_name IS NOT NULL",
    "SELECT name FROM student WHERE dept_name IS NULL ORDER BY name",
    "SELECT name, tot_cred FROM student WHERE tot_cred BETWEEN 30 AND 45 ORDER BY tot_cred",
    "SELECT year, semester, COUNT(*) AS n FROM takes GROUP BY year, semester ORDER BY year, semester",
    "SELECT year, COUNT(DISTINCT id) FROM takes GROUP BY year ORDER BY year DESC",
    "SELECT `year` FROM takes GROUP BY `year` ORDER BY COUNT(*) DESC, `year` LIMIT 1",
    "SELECT `key`, `group` FROM `order` WHERE `rank` > 4 ORDER BY `key`",
    "SELECT o.`group`, SUM(o.`rank`) FROM `order` o GROUP BY o.`group` ORDER BY 1",
    "SELECT grade, COUNT(*) FROM takes WHERE grade IS NOT NULL GROUP BY grade ORDER BY COUNT(*) DESC, grade",
    "SELECT COUNT(*) FROM takes WHERE grade <> 'A' OR grade IS NULL",
    "SELECT i.name, i.salary FROM instructor i WHERE i.salary > (SELECT AVG(j.salary) FROM instructor j WHERE "
    "j.dept_name = i.dept_name) ORDER BY i.id",
    "SELECT d.dept_name FROM department d WHERE NOT EXISTS (SELECT 1 FROM instructor i WHERE i.dept_name = "
    "d.dept_name)",
    "SELECT d.dept_name, (SELECT COUNT(*) FROM student s WHERE s.dept_name = d.dept_name) AS students FROM "
    "department d ORDER BY students DESC, d.dept_name",
    "SELECT dept_name, COUNT(*) AS n FROM student GROUP BY dept_name HAVING n > 6 ORDER BY n DESC, dept_name",
    "SELECT CASE WHEN tot_cred >= 90 THEN 'senior' WHEN tot_cred >= 60 THEN 'junior' ELSE 'other' END AS level, "
    "COUNT(*) FROM student GROUP BY level ORDER BY level",
    "SELECT name FROM student ORDER BY tot_cred DESC LIMIT 3 OFFSET 2",
    "SELECT name FROM student WHERE name LIKE 'Student 1_' ORDER BY name",
    "SELECT name FROM student WHERE name LIKE '%1%' AND NOT name LIKE '%11%' ORDER BY id LIMIT 4",
    "SELECT upper(name), length(name) FROM instructor WHERE id IN (1, 2, 3) ORDER BY id",
    "SELECT round(avg(salary), 2) AS average FROM instructor",
    "SELECT dept_name, max(salary) - min(salary) AS spread FROM instructor GROUP BY dept_name ORDER BY spread DESC, 1",
    "SELECT a.name, b.name FROM instructor a, instructor b WHERE a.dept_name = b.dept_name AND a.id < b.id ORDER "
    "BY a.id, b.id LIMIT 4",
    "WITH best AS (SELECT dept_name, MAX(salary) AS top FROM instructor GROUP BY dept_name) SELECT i.name, b.top "
    "FROM best b JOIN instructor i ON i.dept_name = b.dept_name AND i.salary = b.top ORDER BY i.name",
    "WITH counts AS (SELECT course_id, COUNT(*) AS n FROM takes GROUP BY course_id), most AS (SELECT MAX(n) AS m "
    "FROM counts) SELECT c.course_id FROM counts c, most WHERE c.n = most.m ORDER BY c.course_id",
    "SELECT name, salary, RANK() OVER (PARTITION BY dept_name ORDER BY salary DESC) AS r FROM instructor ORDER BY id",
    "SELECT * FROM (SELECT name, dept_name, ROW_NUMBER() OVER (PARTITION BY dept_name ORDER BY salary DESC) AS "
    "rn FROM instructor) AS ranked WHERE rn = 1 ORDER BY name",
    "SELECT id, SUM(salary) OVER (ORDER BY id) AS running FROM instructor ORDER BY id LIMIT 3",
    "SELECT id, LAG(salary, 1) OVER (ORDER BY id) FROM instructor ORDER BY id LIMIT 3",
    "SELECT name FROM student WHERE birth > '2001-01-01' ORDER BY birth, id LIMIT 3",
    "SELECT strftime('%Y', birth) AS y, COUNT(*) FROM student GROUP BY y ORDER BY y",
    "SELECT YEAR(birth) AS y, COUNT(*) FROM student GROUP BY y ORDER BY y",
    "SELECT name FROM student WHERE YEAR(birth) = 2000 AND MONTH(birth) < 6 ORDER BY name",
    "SELECT name FROM student WHERE substr(birth, 1, 4) = '2000' ORDER BY name",
    "SELECT DATE_FORMAT(birth, '%Y-%m') FROM student WHERE id = 3",
    "SELECT DATEDIFF('2020-01-01', birth) FROM student WHERE id = 3",
    "SELECT TIMESTAMPDIFF(YEAR, birth, '2020-01-01') AS age FROM student ORDER BY age DESC LIMIT 1",
    "SELECT julianday('2020-01-01') - julianday(birth) FROM student WHERE id = 3",
    "SELECT name FROM student WHERE birth BETWEEN '2000-01-01' AND '2000-12-31' ORDER BY id",
    "SELECT name || ' (' || dept_name || ')' FROM student WHERE id < 4 ORDER BY id",
    "SELECT CONCAT(name, ' of ', dept_name) FROM instructor ORDER BY id LIMIT 2",
    "SELECT GROUP_CONCAT(name) FROM instructor WHERE dept_name = 'Physics'",
    "SELECT dept_name, GROUP_CONCAT(DISTINCT building) FROM department GROUP BY dept_name ORDER BY dept_name",
    "SELECT GROUP_CONCAT(name ORDER BY salary DESC SEPARATOR '; ') FROM instructor",
    "SELECT COALESCE(dept_name, 'none') AS d, COUNT(*) FROM student GROUP BY d ORDER BY d",
    "SELECT IFNULL(grade, '?') FROM takes ORDER BY id, course_id, year LIMIT 4",
    "SELECT SUM(CASE grade WHEN 'A' THEN 1 ELSE 0 END) * 100.0 / COUNT(*) FROM takes",
    "SELECT COUNT(*) * 1.0 / (SELECT COUNT(*) FROM student) FROM takes",
    "SELECT CAST(SUM(credits) AS DECIMAL(10,1)) / COUNT(*) FROM course",
    "SELECT CAST(COUNT(*) AS FLOAT) / 3 FROM course",
    "SELECT name FROM instructor UNION SELECT name FROM student WHERE id < 3 ORDER BY name",
    "SELECT 'teacher' AS kind, COUNT(*) FROM instructor UNION ALL SELECT 'student', COUNT(*) FROM student",
    "SELECT department.dept_name, course.title FROM department INNER JOIN course ON department.dept_name = "
    "course.dept_name WHERE course.credits = 4 ORDER BY course.course_id",
    "SELECT * FROM course NATURAL JOIN department ORDER BY course_id LIMIT 2",
    "SELECT title, building FROM course JOIN department USING (dept_name) ORDER BY title LIMIT 3",
    "SELECT s.name FROM student s JOIN takes t ON s.id = t.id AND t.grade = 'A' WHERE t.year = 2018 GROUP BY "
    "s.id, s.name ORDER BY s.id",
    "SELECT count(DISTINCT dept_name), count(dept_name), count(*) FROM student",
    "SELECT id FROM student WHERE (tot_cred > 100 OR dept_name = 'Math') AND id % 2 = 0 ORDER BY id",
    "SELECT id FROM student WHERE dept_name IN ('Math', 'Physics') AND tot_cred NOT BETWEEN 10 AND 100 ORDER BY id",
    "SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM takes GROUP BY id) AS per_student",
    "SELECT t.id, t.n FROM (SELECT id, COUNT(*) AS n FROM takes GROUP BY id) t WHERE t.n > 2 ORDER BY t.id LIMIT 3",
    "SELECT name FROM student WHERE id = (SELECT id FROM takes GROUP BY id ORDER BY COUNT(*) DESC, id LIMIT 1)",
    "SELECT d.dept_name, d.budget / NULLIF(COUNT(i.id), 0) AS per_head FROM department d LEFT JOIN instructor i "
    "ON i.dept_name = d.dept_name GROUP BY d.dept_name, d.budget ORDER BY d.dept_name",
    "SELECT building FROM department GROUP BY building HAVING COUNT(*) = (SELECT MAX(n) FROM (SELECT COUNT(*) AS "
    "n FROM department GROUP BY building) AS sizes) ORDER BY building",
    "SELECT year, AVG(CASE grade WHEN 'A' THEN 4.0 WHEN 'B' THEN 3.0 WHEN 'C' THEN 2.0 END) FROM takes GROUP BY "
    "year ORDER BY year;",
    "-- departments and their best paid\nSELECT dept_name, MAX(salary) FROM instructor GROUP BY dept_name ORDER "
    "BY 2 DESC",
]
