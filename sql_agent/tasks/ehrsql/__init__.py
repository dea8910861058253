"""The task ehrsql: questions of hospital staff about MIMIC-IV, a part of which the database cannot answer."""
