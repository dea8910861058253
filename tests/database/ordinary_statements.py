"""Statements as models write them for the medical tables, whose engine is the oracle: what it runs should be answered.

Some are not SQLite's dialect, so the engine refuses them too; they stand here because models write them all the same.
"""

from __future__ import annotations

LOOKUPS = [
    "SELECT * FROM drugs_info WHERE med_name = 'Drug 3'",
    "SELECT med_name, dosage FROM drugs_info WHERE med_name LIKE '%Drug 1%' LIMIT 5",
    "SELECT DISTINCT form FROM drugs_info ORDER BY form",
    "SELECT indication FROM drugs_info WHERE id = 7;",
    "select adverse_reactions from drugs_info where lower(med_name) = lower('DRUG 5')",
    "SELECT d.* FROM disease AS d WHERE d.disease_name = 'Disease 4'",
    "SELECT disease.treatment FROM disease WHERE disease.disease_name LIKE 'Disease 1%'",
    "SELECT med_name FROM drugs_info WHERE indication LIKE '%头痛%' AND form = 'tablet'",
    "SELECT med_name AS name, form AS `dosage form` FROM drugs_info WHERE id < 5",
    'SELECT med_name AS "Drug name" FROM drugs_info WHERE id BETWEEN 2 AND 4',
    "SELECT [med_name] FROM [drugs_info] WHERE [id] = 3",
    'SELECT "med_name" FROM "drugs_info" WHERE "id" = 3',
    "SELECT `med_name` FROM `drugs_info` WHERE `id` = 3",
    "SELECT main.drugs_info.med_name FROM main.drugs_info WHERE id = 9",
    "SELECT med_name FROM drugs_info WHERE form IS NULL",
    "SELECT med_name FROM drugs_info WHERE form IS NOT NULL AND NOT form = 'tablet'",
    "SELECT med_name FROM drugs_info WHERE form <> 'syrup' AND form != 'tablet'",
    "SELECT med_name FROM drugs_info WHERE med_name IN ('Drug 1', 'Drug 2', '布洛芬')",
    "SELECT med_name FROM drugs_info WHERE (id, form) = (1, 'capsule')",
    "SELECT med_name FROM drugs_info WHERE (id, form) IN (SELECT id, form FROM drugs_info WHERE id < 4)",
    "SELECT med_name FROM drugs_info WHERE med_name = 'It''s'",
    'SELECT id FROM drugs_info WHERE med_name = "Drug 7"',
    'SELECT id FROM drugs_info WHERE med_name LIKE "%Drug 7%"',
    'SELECT id FROM drugs_info WHERE "Drug 7" = med_name',
    "SELECT id, 'a literal' AS kind FROM disease WHERE id = 1",
    "SELECT med_name FROM drugs_info WHERE med_name GLOB 'Drug [1-3]'",
    "SELECT med_name FROM drugs_info WHERE med_name NOT LIKE '%1%' ORDER BY id LIMIT 3",
    "SELECT med_name FROM drugs_info WHERE indication LIKE '%50\\%%' ESCAPE '\\'",
    "SELECT med_name -- the name\nFROM drugs_info /* all */ WHERE id = 3",
    "\ufeffSELECT med_name FROM drugs_info WHERE id = 3",
    "SELECT med_name FROM drugs_info WHERE id = 3 ;  ",
    "\n\tSELECT\n\tmed_name\nFROM\n\tdrugs_info\nLIMIT 1\n",
    "SELECT med_name FROM drugs_info ORDER BY RANDOM() LIMIT 1",
    "SELECT med_name FROM drugs_info LIMIT 5 OFFSET 10",
    "SELECT med_name FROM drugs_info LIMIT 10, 5",
    "SELECT med_name FROM drugs_info ORDER BY form COLLATE NOCASE DESC, id ASC NULLS LAST LIMIT 4",
    "SELECT med_name FROM drugs_info WHERE med_name = 'drug 3' COLLATE NOCASE",
    "SELECT rowid, med_name FROM drugs_info LIMIT 2",
    "SELECT ALL form FROM drugs_info LIMIT 2",
    "SELECT 1 + 1 AS two, 7 / 2, 7 % 2, 7.0 / 2, -3, +3, ~5, 1 << 4, 6 & 3, 6 | 1",
    "SELECT TRUE, FALSE, NULL, 1 = 1, 1 == 1, 'a' || 'b' || 3",
    "SELECT 0x1F, 1e3, .5, x'41'",
    "SELECT med_name FROM drugs_info WHERE id = '3'",
    "SELECT med_name FROM drugs_info WHERE id IS 3",
    "SELECT med_name FROM drugs_info WHERE form IS DISTINCT FROM 'tablet' LIMIT 3",
    "SELECT med_name FROM drugs_info WHERE form ISNULL",
    "SELECT med_name FROM drugs_info WHERE form NOTNULL LIMIT 3",
    "SELECT med_name FROM drugs_info WHERE form NOT NULL LIMIT 3",
    "SELECT med_name FROM drugs_info INDEXED BY drug_name WHERE med_name = 'Drug 3'",
    "SELECT med_name FROM drugs_info NOT INDEXED WHERE med_name = 'Drug 3'",
]

AGGREGATES = [
    "SELECT COUNT(*) FROM disease",
    "SELECT count(DISTINCT form) AS forms FROM drugs_info",
    "SELECT form, COUNT(*) AS n FROM drugs_info GROUP BY form ORDER BY n DESC",
    "SELECT form, COUNT(*) n FROM drugs_info GROUP BY 1 HAVING n > 10 ORDER BY 2 DESC",
    "SELECT form, COUNT(*) FROM drugs_info GROUP BY form HAVING COUNT(*) > (SELECT COUNT(*) / 10 FROM drugs_info)",
    "SELECT AVG(LENGTH(indication)), SUM(id), TOTAL(id), MIN(id), MAX(id) FROM drugs_info",
    "SELECT GROUP_CONCAT(med_name, '; ') FROM drugs_info WHERE id < 4",
    "SELECT GROUP_CONCAT(DISTINCT form) FROM drugs_info",
    "SELECT STRING_AGG(med_name, ', ') FROM drugs_info WHERE id < 4",
    "SELECT COUNT(*) FILTER (WHERE form = 'tablet') AS tablets, COUNT(*) AS everything FROM drugs_info",
    "SELECT SUM(CASE WHEN form = 'tablet' THEN 1 ELSE 0 END) FROM drugs_info",
    "SELECT SUM(form = 'tablet') FROM drugs_info",
    "SELECT ROUND(AVG(id), 2) FROM drugs_info",
    "SELECT 100.0 * SUM(form IS NULL) / COUNT(*) AS percent FROM drugs_info",
    "SELECT COUNT(*) > 5 FROM disease WHERE overview LIKE '%1%'",
    "SELECT form, MAX(id), med_name FROM drugs_info GROUP BY form",
    "SELECT form, component, COUNT(*) FROM drugs_info GROUP BY form, component ORDER BY form, component",
    "SELECT COUNT(*) FROM (SELECT DISTINCT form, component FROM drugs_info)",
    "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM drugs_info GROUP BY form)",
    "SELECT substr(med_name, 1, 4) AS start, COUNT(*) FROM drugs_info GROUP BY start",
    "SELECT CAST(AVG(id) AS INTEGER), CAST(id AS TEXT) FROM drugs_info",
    "SELECT form FROM drugs_info GROUP BY form HAVING SUM(id) > 100 AND MIN(id) < 3",
    "SELECT json_group_array(med_name) FROM drugs_info WHERE id < 4",
    "SELECT json_group_object(id, med_name) FROM drugs_info WHERE id < 4",
]

FUNCTIONS = [
    "SELECT UPPER(med_name), LOWER(med_name), LENGTH(med_name), TRIM(med_name) FROM drugs_info WHERE id = 3",
    "SELECT SUBSTR(indication, 1, 20), SUBSTRING(indication, 1, 20) FROM drugs_info WHERE id = 3",
    "SELECT SUBSTR(overview, INSTR(overview, 'of') + 3) FROM disease LIMIT 2",
    "SELECT REPLACE(overview, char(10), ' ') FROM disease LIMIT 2",
    "SELECT COALESCE(form, 'unknown'), IFNULL(form, '-'), NULLIF(form, 'tablet') FROM drugs_info LIMIT 3",
    "SELECT IIF(form IS NULL, 'none', form) FROM drugs_info LIMIT 3",
    "SELECT printf('%s (%d)', med_name, id) FROM drugs_info LIMIT 3",
    "SELECT format('%05.2f', 3.14159)",
    "SELECT hex(med_name), quote(med_name), typeof(id) FROM drugs_info LIMIT 2",
    "SELECT unicode('A'), char(65, 66), unhex('41')",
    "SELECT ABS(-3), ROUND(2.567, 1), MAX(1, 2, 3), MIN(1, 2), SIGN(-2), POWER(2, 3), SQRT(9), MOD(7, 3)",
    "SELECT DATE('now') = CURRENT_DATE, DATE('2024-01-31', '+1 month'), STRFTIME('%Y', '2024-05-01')",
    "SELECT julianday('2024-01-02') - julianday('2024-01-01'), unixepoch('2024-01-01'), time('12:00')",
    "SELECT CAST('12' AS INT) + 1, CAST(3.7 AS INTEGER), CAST(5 AS REAL), CAST(12 AS VARCHAR(10))",
    "SELECT CAST('3.14159' AS DECIMAL(10,2)), CAST(med_name AS VARCHAR(5)), CAST(1 AS NUMERIC) FROM drugs_info LIMIT 1",
    "SELECT CAST(id AS CHAR), CAST(id AS FLOAT), CAST(id AS DOUBLE), CAST('a' AS BLOB), CAST(id AS BIGINT) "
    "FROM disease",
    "SELECT CAST(id AS UNSIGNED), CAST(id AS NVARCHAR(20)), CAST(id AS DOUBLE PRECISION) FROM disease LIMIT 1",
    "SELECT CAST('2024-01-01' AS DATE), CAST('x' AS STRING), CAST(1 AS BOOLEAN)",
    "SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]')",
    "SELECT json_array(1, 2), json_object('a', 1), json_array_length('[1,2]'), json_type('[1]'), json_valid('{}')",
    "SELECT '{\"a\": 1}' -> '$.a', '{\"a\": 1}' ->> 'a'",
    "SELECT LTRIM('  a'), RTRIM('a  '), TRIM('xxaxx', 'x'), RTRIM('a;', ';')",
    "SELECT med_name, LENGTH(indication) - LENGTH(REPLACE(indication, ';', '')) FROM drugs_info LIMIT 3",
    "SELECT CASE form WHEN 'tablet' THEN 1 WHEN 'syrup' THEN 2 ELSE 3 END FROM drugs_info LIMIT 4",
    "SELECT CASE WHEN LENGTH(indication) > 10 THEN SUBSTR(indication, 1, 10) || '...' ELSE indication END "
    "FROM drugs_info",
    "SELECT CONCAT(med_name, ' ', form) FROM drugs_info LIMIT 1",
    "SELECT CONCAT_WS(', ', med_name, form) FROM drugs_info LIMIT 1",
    "SELECT LEFT(med_name, 3) FROM drugs_info LIMIT 1",
    "SELECT RIGHT(med_name, 3) FROM drugs_info LIMIT 1",
    "SELECT YEAR(created_at) FROM drugs_info LIMIT 1",
    "SELECT NOW()",
    "SELECT IF(form IS NULL, 1, 0) FROM drugs_info LIMIT 1",
    "SELECT LEN(med_name) FROM drugs_info LIMIT 1",
    "SELECT CHAR_LENGTH(med_name) FROM drugs_info LIMIT 1",
    "SELECT CHARINDEX('a', med_name) FROM drugs_info LIMIT 1",
    "SELECT LOCATE('a', med_name) FROM drugs_info LIMIT 1",
    "SELECT INITCAP(med_name) FROM drugs_info LIMIT 1",
    "SELECT med_name FROM drugs_info WHERE med_name REGEXP '^Drug'",
    "SELECT med_name FROM drugs_info WHERE med_name ILIKE 'drug%' LIMIT 1",
    "SELECT med_name FROM drugs_info WHERE CONTAINS(med_name, 'Drug')",
    "SELECT GREATEST(1, 2), LEAST(1, 2)",
    "SELECT likely(1), unlikely(0), likelihood(1, 0.5)",
    "SELECT soundex(med_name) FROM drugs_info LIMIT 1",
    "SELECT octet_length(med_name) FROM drugs_info LIMIT 1",
    "SELECT exp(1), ln(2), log(10), log10(100), log2(8), pi(), degrees(1), radians(180), sin(0), cos(0), tan(0)",
]

JOINS = [
    "SELECT d.disease_name, g.med_name FROM disease d JOIN drugs_info g ON g.indication LIKE '%' || "
    "d.disease_name || '%' "
    "LIMIT 5",
    "SELECT d.disease_name FROM disease d INNER JOIN drugs_info g ON d.id = g.id WHERE g.form = 'tablet' LIMIT 3",
    "SELECT d.disease_name, g.med_name FROM disease d LEFT JOIN drugs_info g ON d.id = g.id + 199 LIMIT 4",
    "SELECT d.disease_name, g.med_name FROM disease d LEFT OUTER JOIN drugs_info g USING (id) LIMIT 4",
    "SELECT d.disease_name, g.med_name FROM disease d CROSS JOIN drugs_info g LIMIT 4",
    "SELECT d.disease_name, g.med_name FROM disease d, drugs_info g WHERE d.id = g.id AND d.id < 4",
    "SELECT disease_name, med_name FROM disease NATURAL JOIN drugs_info LIMIT 3",
    "SELECT a.med_name, b.med_name FROM drugs_info a JOIN drugs_info b ON a.component = b.component AND a.id "
    "< b.id LIMIT 5",
    "SELECT d.disease_name, g.med_name FROM disease d RIGHT JOIN drugs_info g ON d.id = g.id LIMIT 2",
    "SELECT d.disease_name, g.med_name FROM disease d FULL OUTER JOIN drugs_info g ON d.id = g.id LIMIT 2",
    "SELECT t.n, d.disease_name FROM (SELECT id AS n FROM drugs_info WHERE form = 'tablet') t JOIN disease d "
    "ON d.id = t.n "
    "LIMIT 3",
    "SELECT t.n, d.disease_name FROM (SELECT id AS n FROM drugs_info) AS t, disease AS d WHERE t.n = d.id AND t.n < 4",
    "SELECT d.disease_name FROM disease d JOIN (SELECT max(id) AS top FROM drugs_info) m ON d.id < m.top LIMIT 3",
    "SELECT d.disease_name, x.n FROM disease d LEFT JOIN (SELECT component, count(*) AS n FROM drugs_info "
    "GROUP BY component) "
    "x ON x.component = 'salt ' || d.id WHERE x.n IS NOT NULL",
    "WITH t AS (SELECT id AS n, med_name AS name FROM drugs_info WHERE form = 'syrup') SELECT t.name, "
    "d.disease_name FROM t "
    "JOIN disease d ON d.id = t.n WHERE t.n < 20",
    "WITH t AS (SELECT id AS n FROM drugs_info) SELECT d.disease_name FROM disease d WHERE d.id IN (SELECT n "
    "FROM t) LIMIT 2",
    "WITH t AS (SELECT id AS n FROM drugs_info) SELECT d.disease_name FROM disease d, t WHERE t.n = d.id AND "
    "n > 3 LIMIT 2",
    "WITH t AS (SELECT form AS f, count(*) AS n FROM drugs_info GROUP BY form) SELECT g.med_name, t.n FROM "
    "drugs_info g JOIN t "
    "ON g.form = t.f WHERE t.n > 10 ORDER BY g.id LIMIT 3",
    "SELECT g.med_name FROM drugs_info g JOIN disease d ON g.id = d.id JOIN disease e ON e.id = d.id WHERE e.id = 5",
    "SELECT a.id FROM disease a JOIN disease b ON a.id = b.id JOIN disease c ON c.id = b.id JOIN disease d ON "
    "d.id = c.id "
    "JOIN drugs_info e ON e.id = d.id WHERE a.id < 5",
    "SELECT d.disease_name FROM (disease d JOIN drugs_info g ON d.id = g.id) WHERE g.id = 3",
    "SELECT * FROM disease d JOIN drugs_info g ON d.id = g.id WHERE d.id = 3",
    "SELECT d.*, g.med_name FROM disease d JOIN drugs_info g ON d.id = g.id WHERE d.id = 3",
]

NESTED = [
    "SELECT med_name FROM drugs_info WHERE id = (SELECT MAX(id) FROM disease)",
    "SELECT med_name FROM drugs_info WHERE id IN (SELECT id FROM disease WHERE disease_name LIKE '%1')",
    "SELECT med_name FROM drugs_info WHERE id NOT IN (SELECT id FROM disease)",
    "SELECT disease_name FROM disease d WHERE EXISTS (SELECT 1 FROM drugs_info g WHERE g.id = d.id AND g.form "
    "= 'syrup')",
    "SELECT disease_name FROM disease d WHERE NOT EXISTS (SELECT * FROM drugs_info g WHERE g.id = d.id)",
    "SELECT disease_name, (SELECT med_name FROM drugs_info g WHERE g.id = d.id) AS drug FROM disease d LIMIT 3",
    "SELECT (SELECT COUNT(*) FROM disease) AS diseases, (SELECT COUNT(*) FROM drugs_info) AS drugs",
    "SELECT EXISTS (SELECT 1 FROM disease WHERE disease_name = 'Disease 3')",
    "SELECT n FROM (SELECT form, COUNT(*) AS n FROM drugs_info GROUP BY form) WHERE n > 3",
    "SELECT t.form FROM (SELECT form, COUNT(*) AS n FROM drugs_info GROUP BY form) AS t ORDER BY t.n DESC LIMIT 1",
    "SELECT * FROM (SELECT * FROM (SELECT id, med_name FROM drugs_info LIMIT 5) a) b",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT * FROM a, b",
    "WITH a(x, y) AS (SELECT id, med_name FROM drugs_info LIMIT 3) SELECT y FROM a WHERE x > 1",
    "WITH a AS MATERIALIZED (SELECT id FROM disease) SELECT COUNT(*) FROM a",
    "WITH ranked AS (SELECT med_name, ROW_NUMBER() OVER (PARTITION BY form ORDER BY id) AS r FROM drugs_info) "
    "SELECT med_name FROM ranked WHERE r = 1",
    "WITH v(a, b) AS (VALUES (1, 'x'), (2, 'y')) SELECT b FROM v WHERE a = 2",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b'))",
    "SELECT v.column1 FROM (VALUES ('Drug 1'), ('Drug 2')) v JOIN drugs_info g ON g.med_name = v.column1",
    "SELECT med_name FROM drugs_info WHERE id IN (VALUES (1), (2))",
    "WITH names(n) AS (VALUES ('Drug 1'), ('Drug 9')) SELECT n, (SELECT form FROM drugs_info WHERE med_name = "
    "n) FROM names",
    "SELECT x FROM (SELECT 1 AS x UNION ALL SELECT 2) WHERE x > 1",
    "SELECT a.n FROM (SELECT id n FROM disease) a WHERE a.n = (SELECT MIN(b.n) FROM (SELECT id n FROM disease) b)",
    "SELECT disease_name FROM disease WHERE length(overview) = (SELECT MAX(length(overview)) FROM disease) LIMIT 2",
    "SELECT med_name AS m FROM drugs_info WHERE m LIKE 'Drug 1%' AND length(m) < 7",
    "SELECT id * 2 AS doubled FROM disease WHERE doubled < 10 ORDER BY doubled",
    "SELECT substr(med_name, 6) + 0 AS number FROM drugs_info WHERE number > 195",
    "SELECT m.med_name FROM (SELECT * FROM drugs_info WHERE form = 'tablet') AS m WHERE m.id < 20 ORDER BY m.id",
]

UNIONS = [
    "SELECT med_name FROM drugs_info WHERE id = 1 UNION SELECT disease_name FROM disease WHERE id = 1",
    "SELECT med_name AS name, 'drug' AS kind FROM drugs_info WHERE id < 3 UNION ALL SELECT disease_name, "
    "'disease' FROM "
    "disease WHERE id < 3 ORDER BY name",
    "SELECT id FROM drugs_info INTERSECT SELECT id FROM disease LIMIT 3",
    "SELECT id FROM drugs_info EXCEPT SELECT id FROM disease",
    "SELECT * FROM (SELECT med_name FROM drugs_info LIMIT 2) UNION ALL SELECT * FROM (SELECT disease_name "
    "FROM disease LIMIT 2)",
    " UNION ALL ".join(f"SELECT med_name FROM drugs_info WHERE id = {number}" for number in range(1, 41)),
    " UNION ".join(f"SELECT 'col{n}' AS c, COUNT(*) FROM disease WHERE overview LIKE '%{n}%'" for n in range(20)),
    "SELECT med_name FROM drugs_info WHERE " + " OR ".join(f"indication LIKE '%Disease {n}%'" for n in range(70)),
    "SELECT med_name FROM drugs_info WHERE id IN (" + ", ".join(map(str, range(1, 201))) + ") LIMIT 3",
    "SELECT med_name FROM drugs_info WHERE "
    + " AND ".join(f"coalesce(indication, '') NOT LIKE '%{n}%'" for n in range(30, 70)),
]

WINDOWS = [
    "SELECT med_name, ROW_NUMBER() OVER (ORDER BY id) FROM drugs_info LIMIT 3",
    "SELECT med_name, RANK() OVER (PARTITION BY form ORDER BY id DESC) AS r FROM drugs_info ORDER BY r, id LIMIT 3",
    "SELECT id, LAG(id) OVER (ORDER BY id), LEAD(id, 2, 0) OVER (ORDER BY id) FROM disease LIMIT 3",
    "SELECT id, SUM(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM disease LIMIT 3",
    "SELECT id, COUNT(*) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM disease LIMIT 3",
    "SELECT id, AVG(id) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) FROM disease LIMIT 3",
    "SELECT id, FIRST_VALUE(med_name) OVER w, NTILE(4) OVER w FROM drugs_info WINDOW w AS (ORDER BY id) LIMIT 3",
    "SELECT id, SUM(id) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) FROM disease LIMIT 3",
    "SELECT form, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) FROM drugs_info GROUP BY form",
    "SELECT DISTINCT form, COUNT(*) OVER (PARTITION BY form) FROM drugs_info",
    "SELECT id, PERCENT_RANK() OVER (ORDER BY id), CUME_DIST() OVER (ORDER BY id) FROM disease LIMIT 2",
    "SELECT id, count(*) FILTER (WHERE form = 'tablet') OVER (ORDER BY id) FROM drugs_info LIMIT 4",
]

OTHER_DIALECTS = [
    "SELECT TOP 5 med_name FROM drugs_info",
    "SELECT med_name FROM drugs_info FETCH FIRST 5 ROWS ONLY",
    "SELECT med_name FROM drugs_info WHERE id = 3 FOR UPDATE",
    "SELECT med_name::text FROM drugs_info LIMIT 1",
    "SELECT EXTRACT(YEAR FROM created_at) FROM drugs_info LIMIT 1",
    "SELECT med_name FROM drugs_info HAVING id = 3",
    "SELECT med_name FROM drugs_info WHERE COUNT(*) > 1",
    "SELECT id FROM disease WHERE overview SIMILAR TO '%x%'",
    "SELECT DISTINCT ON (form) form, med_name FROM drugs_info",
    "SELECT med_name FROM drugs_info WHERE med_name = 'Crohn's disease'",
    "USE medical; SELECT 1",
    "SELECT name FROM drug",
    "SELECT symptoms FROM disease",
    "SELECT disease_name FROM disease WHERE created > date('now')",
]

# Refused on purpose, with the tables and columns as a hint.
ASK_FOR_THE_SCHEMA = [
    "SHOW TABLES",
    "DESCRIBE drugs_info",
    "PRAGMA table_info(drugs_info)",
    "SELECT name FROM sqlite_master WHERE type = 'table'",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'disease'",
    "EXPLAIN SELECT * FROM disease",
]

# One for every column that may be looked for, as a question about one field would.
_DRUG_COLUMNS = [
    "component",
    "dosage",
    "indication",
    "adverse_reactions",
    "contraindications",
    "precautions",
    "storage",
    "mechanism_action",
]
_DISEASE_COLUMNS = [
    "overview",
    "clinical_manif",
    "complication",
    "treatment",
    "cause",
    "diagnosis",
    "prevention",
    "prognosis",
    "examination",
]
FIELDS = [
    f"SELECT {column} FROM drugs_info WHERE med_name = 'Drug {n}'" for n, column in enumerate(_DRUG_COLUMNS, 1)
] + [
    f"SELECT d.{column} AS answer FROM disease AS d WHERE d.disease_name LIKE '%Disease {n}%' "
    f"AND d.{column} IS NOT NULL "
    f"AND TRIM(d.{column}) <> '' LIMIT 1"
    for n, column in enumerate(_DISEASE_COLUMNS, 1)
]

ORDINARY = [
    *(LOOKUPS + AGGREGATES + FUNCTIONS + JOINS + NESTED + UNIONS + WINDOWS + OTHER_DIALECTS + FIELDS),
]
