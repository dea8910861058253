"""An invented hospital with the tables of EHRSQL that its task reads, and questions in its format."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

_TABLES = """
CREATE TABLE patients (row_id INT PRIMARY KEY, subject_id INT, gender VARCHAR(5), dod TIMESTAMP);
CREATE TABLE admissions (row_id INT PRIMARY KEY, subject_id INT, hadm_id INT, admittime TIMESTAMP,
    dischtime TIMESTAMP, admission_location VARCHAR(50), language VARCHAR(10), age INT);
CREATE TABLE d_icd_diagnoses (row_id INT PRIMARY KEY, icd_code VARCHAR(10), long_title VARCHAR(255));
CREATE TABLE d_icd_procedures (row_id INT PRIMARY KEY, icd_code VARCHAR(10), long_title VARCHAR(255));
CREATE TABLE d_labitems (row_id INT PRIMARY KEY, itemid INT, label VARCHAR(200));
CREATE TABLE d_items (row_id INT PRIMARY KEY, itemid INT, label VARCHAR(200), linksto VARCHAR(50));
CREATE TABLE diagnoses_icd (row_id INT PRIMARY KEY, hadm_id INT, icd_code VARCHAR(10), charttime TIMESTAMP);
CREATE TABLE procedures_icd (row_id INT PRIMARY KEY, hadm_id INT, icd_code VARCHAR(10), charttime TIMESTAMP);
CREATE TABLE labevents (row_id INT PRIMARY KEY, hadm_id INT, itemid INT, valuenum DOUBLE, charttime TIMESTAMP);
CREATE TABLE prescriptions (row_id INT PRIMARY KEY, hadm_id INT, drug VARCHAR(255), dose_val_rx VARCHAR(100),
    route VARCHAR(50), starttime TIMESTAMP);
INSERT INTO patients VALUES (0, 10001, 'f', NULL), (1, 10002, 'm', '2100-09-01 00:00:00');
INSERT INTO admissions VALUES
    (0, 10001, 501, '2100-03-01 08:00:00', '2100-03-04 10:00:00', 'emergency room', 'english', 64),
    (1, 10001, 502, '2100-12-30 08:00:00', NULL, 'physician referral', 'english', 65),
    (2, 10002, 503, '2100-08-20 08:00:00', '2100-09-01 00:00:00', 'emergency room', 'english', 80);
INSERT INTO d_icd_diagnoses VALUES (0, 'a', 'chest pain'), (1, 'b', 'chest pain, unspecified');
INSERT INTO d_icd_procedures VALUES (0, 'p', 'closed biopsy of o''brien''s gland');
INSERT INTO d_labitems VALUES (0, 1, 'glucose'), (1, 2, 'i');
INSERT INTO d_items VALUES (0, 11, 'daily weight', 'chartevents'), (1, 12, 'glucose', 'chartevents');
INSERT INTO diagnoses_icd VALUES (0, 501, 'b', '2100-03-01 08:00:00'), (1, 503, 'a', '2100-08-20 08:00:00');
INSERT INTO procedures_icd VALUES (0, 501, 'p', '2100-03-02 08:00:00');
INSERT INTO labevents VALUES (0, 501, 1, 100.5004, '2100-03-01 09:00:00'), (1, 501, 1, 90.0, '2100-03-02 09:00:00');
INSERT INTO prescriptions VALUES (0, 501, 'aspirin', '2.0', 'po', '2100-03-01 12:00:00'),
    (1, 503, 'aspirin', '2.0', 'iv', '2100-08-21 12:00:00'),
    (2, 503, 'heparin (iv)', '5.5', 'iv', '2100-08-21 13:00:00');
"""
ROUTES = "SELECT prescriptions.route FROM prescriptions WHERE prescriptions.drug = 'aspirin'"
FIRST = (
    "SELECT hadm_id FROM admissions WHERE subject_id = 10001 AND dischtime IS NOT NULL ORDER BY admittime ASC LIMIT 1"
)
TRAIN = [
    ("By which routes is aspirin given?", ROUTES),
    ("What is the age of patient 10002?", "SELECT age FROM admissions WHERE subject_id = 10002"),
    ("Which drugs were prescribed on the first hospital visit of patient 10001?",
     f"SELECT drug FROM prescriptions WHERE hadm_id IN ({FIRST})"),
    ("How many patients had chest pain, unspecified?",
     "SELECT COUNT(DISTINCT hadm_id) FROM diagnoses_icd WHERE icd_code = (SELECT icd_code FROM d_icd_diagnoses "
     "WHERE long_title = 'chest pain, unspecified')"),
    ("What was the first glucose value of patient 10001?",
     "SELECT labevents.valuenum FROM labevents WHERE itemid IN (SELECT itemid FROM d_labitems "
     "WHERE label = 'glucose') ORDER BY charttime LIMIT 1"),
    ("How many patients are there?", "SELECT COUNT(*) FROM patients"),
    ("Which drugs were prescribed by the iv route?", "SELECT drug FROM prescriptions WHERE route = 'iv'"),
    ("Has patient 10001 come to the ER?", "SELECT COUNT(*)>0 FROM admissions WHERE subject_id = 10001 "
     "AND admission_location = 'emergency room'"),
    ("Does patient 777 travel a lot?", "null"),
]  # fmt: skip
VALID = [
    ("How is heparin (iv) given?", "SELECT route FROM prescriptions WHERE drug = 'heparin (iv)'"),
    ("What is the gender of patient 10001?", "SELECT gender FROM patients WHERE subject_id = 10001"),
    ("What is the dose of aspirin?", "SELECT dose_val_rx FROM prescriptions WHERE drug = 'aspirin'"),
    ("Who cleans the windows?", "null"),
    ("What is the shoe size of patient 778?", "null"),
]


def write_ehrsql_folder(folder: Path) -> Path:
    """Write the database and the questions into `folder` as the task expects them; returns `folder`."""
    path = folder / "database" / "mimic_iv" / "mimic_iv.sqlite"
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.executescript(_TABLES)
    connection.close()
    for split, questions in (("train", TRAIN), ("valid", VALID)):
        rows = [
            {"id": f"{split[0]}{number}", "db_id": "mimic_iv", "question": text, "query": query}
            for number, (text, query) in enumerate(questions)
        ]
        (folder / f"{split}.json").write_text(json.dumps(rows), encoding="utf-8")
    return folder
