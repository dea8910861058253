"""Define the two medical tables: their columns, those that a database must have, and how to create them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sql_agent.database.schema import Naming, RequiredSchema
from sql_agent.tasks.medical.aliases import aliases_in, everyday_names

TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "drugs_info": (
            "id",
            "med_name",
            "med_name_initial",
            "med_barcode",
            "med_approval",
            "component",
            "form",
            "dosage",
            "indication",
            "adverse_reactions",
            "contraindications",
            "precautions",
            "company_name",
            "description",
            "mechanism_action",
            "cate_name",
            "drug_interactions",
            "storage",
            "pack",
            "period",
            "approve_code",
            "status",
            "created_at",
        ),
        "disease": (
            "id",
            "disease_name",
            "overview",
            "clinical_manif",
            "complication",
            "epidemiology",
            "examination",
            "treatment",
            "cause",
            "diagnosis",
            "differ_diag",
            "prevention",
            "prognosis",
            "create_at",
            "update_at",
        ),
    }
)

NAME_COLUMNS: Mapping[str, str] = MappingProxyType({"drugs_info": "med_name", "disease": "disease_name"})
# The columns that introduce a row and so tell what else it is called.
ALIAS_COLUMNS: Mapping[str, str] = MappingProxyType({"drugs_info": "description", "disease": "overview"})
# The column in which a row's initials stand.
INITIAL_COLUMNS: Mapping[str, str] = MappingProxyType({"drugs_info": "med_name_initial"})

SCHEMA = RequiredSchema(
    tables={table: ("id", name) for table, name in NAME_COLUMNS.items()},
    hint="check the path, or make the sample database: sql-agent data build --lang en",
    names={
        table: Naming(name, {ALIAS_COLUMNS[table]: aliases_in}, everyday_names())
        for table, name in NAME_COLUMNS.items()
    },
)


def create_table_sql(table: str) -> str:
    """Return the CREATE TABLE statement of one table: `id` is the integer key, every other column text."""
    columns = ", ".join(f"{name} {'INTEGER PRIMARY KEY' if name == 'id' else 'TEXT'}" for name in TABLES[table])
    return f"CREATE TABLE {table} ({columns})"
