"""More statements as models write them over the medical tables, in SQLite's dialect, MySQL's and what lies between.

The engine is the oracle: what it runs should be answered, and as it answers.
"""

from __future__ import annotations

STATEMENTS = [
    "SELECT treatment FROM disease WHERE disease_name LIKE '%Disease 12%' AND treatment IS NOT NULL AND "
    "treatment <> ''",
    "SELECT treatment, cause FROM disease WHERE LOWER(disease_name) LIKE LOWER('%DISEASE 12%') ORDER BY id LIMIT 10",
    "SELECT med_name, form FROM drugs_info WHERE med_name = 'Drug 12' OR med_name = 'Drug 13' ORDER BY id",
    "SELECT med_name FROM drugs_info WHERE indication LIKE '%Disease 4%' AND indication LIKE '%头痛%' ORDER BY "
    "med_name",
    "SELECT COUNT(*) AS 数量 FROM drugs_info WHERE form = 'tablet'",
    "SELECT med_name AS 药名, form AS 剂型 FROM drugs_info WHERE id < 4 ORDER BY id",
    "SELECT med_name AS `药 名` FROM drugs_info WHERE id < 3 ORDER BY id",
    "SELECT med_name FROM drugs_info WHERE med_name IN ('Drug 1', 'Drug 2') AND form IS NOT NULL ORDER BY id",
    "SELECT a.form = b.form AS same, a.form, b.form FROM drugs_info a, drugs_info b WHERE a.med_name = 'Drug 1' "
    "AND b.med_name = 'Drug 5'",
    "SELECT (SELECT storage FROM drugs_info WHERE med_name = 'Drug 1') = (SELECT storage FROM drugs_info WHERE "
    "med_name = 'Drug 2') AS same",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM drugs_info WHERE med_name = 'Drug 3' AND form = 'tablet') THEN 'yes' "
    "ELSE 'no' END AS answer",
    "SELECT med_name, CASE WHEN indication LIKE '%Disease 1%' THEN 'yes' ELSE 'no' END FROM drugs_info ORDER BY "
    "id LIMIT 3",
    "SELECT id, med_name FROM drugs_info WHERE id IN (SELECT id FROM disease WHERE treatment LIKE CONCAT('%', "
    "'Drug 1', '%')) ORDER BY id LIMIT 5",
    "SELECT d.disease_name, GROUP_CONCAT(g.med_name) AS drugs FROM disease d JOIN drugs_info g ON g.indication "
    "LIKE CONCAT('%', d.disease_name, '%') WHERE d.id = 7 GROUP BY d.disease_name",
    "SELECT d.disease_name, g.med_name FROM disease d JOIN drugs_info g ON INSTR(g.indication, d.disease_name) > "
    "0 WHERE d.id = 7 ORDER BY g.id",
    "SELECT g.med_name FROM drugs_info g INNER JOIN disease d ON d.treatment LIKE '%' || g.med_name || ';%' "
    "WHERE d.disease_name = 'Disease 9' ORDER BY g.id",
    "SELECT med_name, LENGTH(indication) AS len FROM drugs_info WHERE indication IS NOT NULL ORDER BY len DESC, "
    "id LIMIT 3",
    "SELECT form, COUNT(*) AS total, ROUND(COUNT(*) * 100.0 / (SELECT COUNT(*) FROM drugs_info), 1) AS share "
    "FROM drugs_info GROUP BY form ORDER BY total DESC, form",
    "SELECT component, COUNT(*) FROM drugs_info GROUP BY component HAVING COUNT(*) BETWEEN 5 AND 100 ORDER BY "
    "component",
    "SELECT DISTINCT component FROM drugs_info WHERE component LIKE 'salt%' ORDER BY component DESC",
    "SELECT COUNT(DISTINCT component) AS n FROM drugs_info WHERE component != ''",
    "SELECT MIN(med_name), MAX(med_name) FROM drugs_info WHERE form = 'syrup'",
    "SELECT * FROM disease WHERE id = 3",
    "SELECT disease.* FROM disease WHERE disease.id IN (1, 2) ORDER BY disease.id DESC",
    "SELECT SUBSTRING(overview, 1, 8) FROM disease WHERE id = 3",
    "SELECT SUBSTR(overview, -6) FROM disease WHERE id = 3",
    "SELECT SUBSTRING_INDEX(treatment, ';', 1) FROM disease WHERE id = 3",
    "SELECT REPLACE(REPLACE(overview, 'overview', 'summary'), 'of', 'on') FROM disease WHERE id < 3 ORDER BY id",
    "SELECT TRIM(REPLACE(overview, CHAR(10), ' ')) FROM disease WHERE id = 2",
    "SELECT INSTR(overview, 'line'), LENGTH(overview), UPPER(disease_name) FROM disease WHERE id = 2",
    "SELECT LOCATE('line', overview), CHAR_LENGTH(overview), LEFT(disease_name, 3) FROM disease WHERE id = 2",
    "SELECT disease_name FROM disease WHERE overview LIKE '%second line%' AND id > 198 ORDER BY id",
    "SELECT disease_name FROM disease WHERE overview REGEXP 'overview of 1' ORDER BY id LIMIT 2",
    "SELECT disease_name FROM disease WHERE overview REGEXP '^overview' AND disease_name RLIKE '7$' ORDER BY id "
    "LIMIT 2",
    "SELECT disease_name FROM disease WHERE cause IS NULL AND prevention IS NULL ORDER BY id LIMIT 2",
    "SELECT disease_name FROM disease WHERE IFNULL(cause, '') = '' ORDER BY id LIMIT 2",
    "SELECT COALESCE(NULLIF(TRIM(cause), ''), overview) FROM disease WHERE id = 4",
    "SELECT IF(form = 'tablet', 1, 0) AS is_tablet FROM drugs_info WHERE id < 5 ORDER BY id",
    "SELECT IIF(form = 'tablet', 1, 0) AS is_tablet FROM drugs_info WHERE id < 5 ORDER BY id",
    "SELECT med_name FROM drugs_info WHERE form = 'tablet' UNION SELECT med_name FROM drugs_info WHERE component "
    "= 'salt 3' ORDER BY med_name LIMIT 5",
    "(SELECT med_name FROM drugs_info WHERE id = 1) UNION (SELECT med_name FROM drugs_info WHERE id = 2)",
    "SELECT med_name FROM (SELECT med_name, form FROM drugs_info WHERE id < 9) AS t WHERE t.form = 'syrup' ORDER BY 1",
    "SELECT t.* FROM (SELECT med_name, form FROM drugs_info WHERE id < 5) AS t ORDER BY t.med_name",
    "WITH target AS (SELECT id, disease_name FROM disease WHERE disease_name = 'Disease 8') SELECT g.med_name "
    "FROM drugs_info g, target t WHERE g.indication LIKE '%Disease 8;%' ORDER BY g.id",
    "WITH tablets AS (SELECT * FROM drugs_info WHERE form = 'tablet'), syrups AS (SELECT * FROM drugs_info WHERE "
    "form = 'syrup') SELECT (SELECT COUNT(*) FROM tablets) AS t, (SELECT COUNT(*) FROM syrups) AS s",
    "WITH t AS (SELECT form, COUNT(*) AS n FROM drugs_info GROUP BY form) SELECT form FROM t WHERE n = (SELECT "
    "MAX(n) FROM t) ORDER BY form",
    "WITH first AS (SELECT med_name FROM drugs_info ORDER BY id LIMIT 2) SELECT f.med_name, (SELECT COUNT(*) "
    "FROM first) FROM first AS f ORDER BY f.med_name",
    "SELECT med_name, form, DENSE_RANK() OVER (ORDER BY form) AS r FROM drugs_info WHERE form IS NOT NULL ORDER "
    "BY r, id LIMIT 4",
    "SELECT id, med_name, COUNT(*) OVER () AS total FROM drugs_info ORDER BY id LIMIT 2",
    "SELECT id, med_name FROM drugs_info ORDER BY LENGTH(med_name), med_name DESC LIMIT 3",
    "SELECT id, med_name FROM drugs_info ORDER BY form IS NULL, form, id LIMIT 3",
    "SELECT id FROM drugs_info ORDER BY CASE form WHEN 'syrup' THEN 0 ELSE 1 END, id LIMIT 3",
    "SELECT form FROM drugs_info WHERE form > 'c' GROUP BY form ORDER BY COUNT(*) DESC, form",
    "SELECT 1 FROM drugs_info WHERE med_name = 'Drug 4' LIMIT 1",
    "SELECT med_name FROM drugs_info WHERE 1 = 1 AND id = 4",
    "SELECT med_name FROM drugs_info WHERE TRUE AND id = 4",
    "SELECT med_name FROM drugs_info WHERE NOT (form = 'tablet' OR form = 'syrup') ORDER BY id LIMIT 3",
    "SELECT med_name FROM drugs_info WHERE (form, component) IN (('tablet', 'salt 4'), ('syrup', 'salt 2')) "
    "ORDER BY id",
    "SELECT med_name FROM drugs_info WHERE id >= 3 AND id <= 5 ORDER BY id ASC",
    "SELECT med_name FROM drugs_info WHERE id = 3 LIMIT 1 OFFSET 0",
    "SELECT med_name\r\nFROM drugs_info\r\nWHERE id = 3;\r\n",
    "select Med_Name, FORM from drugs_info where ID = 3",
    "SELECT /* the drug */ med_name FROM drugs_info -- here\nWHERE id = 3",
    "SELECT d.disease_name AS name, 'disease' AS kind FROM disease d WHERE d.id = 1 UNION ALL SELECT g.med_name, "
    "'drug' FROM drugs_info g WHERE g.id = 1",
    "SELECT COUNT(*) AS n FROM disease WHERE treatment LIKE '%Drug 1%' OR prevention LIKE '%Drug 1%' OR overview "
    "LIKE '%Drug 1%'",
    "SELECT SUM(LENGTH(treatment)), AVG(LENGTH(treatment)) FROM disease WHERE id < 10",
    "SELECT d1.disease_name FROM disease d1 WHERE d1.id > ALL (SELECT id FROM disease WHERE id < 199) ORDER BY d1.id",
    "SELECT disease_name FROM disease WHERE id = ANY (SELECT id FROM drugs_info WHERE form = 'syrup') ORDER BY "
    "id LIMIT 2",
    "SELECT STRCMP('a', 'b'), GREATEST(1, 5, 3), LEAST(4, 2), FIND_IN_SET('b', 'a,b,c'), FIELD('b', 'a', 'b')",
    "SELECT DATE_SUB('2024-03-01', INTERVAL 1 DAY), LAST_DAY('2024-02-05'), DAYNAME('2024-02-05')",
    "SELECT date('2024-03-01', '-1 day', 'start of month'), strftime('%w', '2024-02-05'), datetime('2024-02-05 10:00')",
    "SELECT FORMAT(1234567.891, 2), TRUNCATE(1.999, 1), CEILING(1.2), 7 DIV 2, 7 MOD 2",
    "SELECT CONVERT(id, CHAR), CAST(id AS SIGNED), CAST(id AS CHAR(3)) FROM disease WHERE id = 12",
    "SELECT JSON_EXTRACT('{\"a\": 1}', '$.a'), JSON_OBJECT('id', id), JSON_ARRAY(id, 'x') FROM disease WHERE id = 3",
    "SELECT med_name FROM drugs_info WHERE med_name LIKE 'Drug\\_%' ESCAPE '\\' LIMIT 2",
    "SELECT med_name FROM drugs_info WHERE med_name LIKE 'Drug 1|%' ESCAPE '|' LIMIT 2",
    "SELECT med_name FROM drugs_info WHERE med_name BETWEEN 'Drug 1' AND 'Drug 11' ORDER BY med_name",
    "SELECT 'It''s ' || med_name FROM drugs_info WHERE id = 1",
    'SELECT "It\'s fine" AS note, med_name FROM drugs_info WHERE id = 1',
    "SELECT x.form, x.n, x.n * 1.0 / t.total AS share FROM (SELECT form, COUNT(*) AS n FROM drugs_info GROUP BY "
    "form) x CROSS JOIN (SELECT COUNT(*) AS total FROM drugs_info) t ORDER BY x.n DESC, x.form",
    "SELECT g.form, AVG(n) FROM drugs_info g JOIN (SELECT component, COUNT(*) AS n FROM drugs_info GROUP BY "
    "component) c ON c.component = g.component GROUP BY g.form ORDER BY g.form",
]
