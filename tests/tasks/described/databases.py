# ruff: noqa: E501
"""Three databases of strangers: a shop with orders, a library in Chinese, and the public data of a hospital."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

_FIRST = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Nils", "Olga")
_LAST = ("Baker", "Carter", "Dixon", "Ellis", "Foster", "Grant", "Hayes", "Irving", "Jensen", "Keller")
_CITIES = ("Leeds", "Bath", "York", "Derby", "Exeter", "Truro")
_GOODS = ("kettle", "lamp", "chair", "desk", "mug", "rug", "clock", "vase", "shelf", "stool", "mirror", "tray")
_LOOKS = ("Blue", "Oak", "Steel", "Mini", "Grand", "Nordic", "Retro")
_MATERIALS = ("oak", "steel", "glass", "cotton", "brass", "clay", "wool")


def make_shop(path: Path) -> Path:
    """Five tables: keys that are not `id`, a table called `order`, empty cells, lists, dates, and a flag."""
    chosen = random.Random(1)
    cities = [(number, city, chosen.choice(("North", "South"))) for number, city in enumerate(_CITIES, 1)]
    people = [f"{first} {last}" for first in _FIRST for last in _LAST]
    chosen.shuffle(people)
    customers = [
        (n, name, f"{name.replace(' ', '.').lower()}@mail.test", chosen.randint(1, len(_CITIES)), _day(chosen),
         chosen.choice((None, "gold", "silver", "bronze")))
        for n, name in enumerate(people[:70], 101)
    ]  # fmt: skip
    products = [
        (n, f"{look} {good}", chosen.choice(("kitchen", "office", "bedroom", "garden")), round(chosen.uniform(4, 250), 2),
         ", ".join(sorted(chosen.sample(_MATERIALS, chosen.randint(1, 3)))), chosen.choice((0, 1)),
         chosen.choice((None, chosen.randint(100, 9000))))
        for n, (look, good) in enumerate(((look, good) for look in _LOOKS for good in _GOODS), 1)
    ]  # fmt: skip
    orders = [(n, chosen.choice(customers)[0], _day(chosen), chosen.choice(("open", "shipped", "returned")))
              for n in range(5001, 5161)]  # fmt: skip
    items = [(n, o[0], chosen.choice(products)[0], chosen.randint(1, 6))
             for n, o in enumerate((o for o in orders for _ in range(2)), 1)]  # fmt: skip
    return _write(
        path,
        {
            "CREATE TABLE city (city_id INTEGER PRIMARY KEY, city_name TEXT, region TEXT)": cities,
            "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, full_name TEXT, email TEXT, "
            "city_id INTEGER REFERENCES city (city_id), joined TEXT, tier TEXT)": customers,
            "CREATE TABLE products (sku INTEGER PRIMARY KEY, productName TEXT, category TEXT, price REAL, "
            "materials TEXT, is_discontinued INTEGER, weight_g INTEGER)": products,
            "CREATE TABLE `order` (order_no INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, "
            "order_date TEXT, status TEXT)": orders,
            "CREATE TABLE order_items (item_id INTEGER PRIMARY KEY, order_no INTEGER REFERENCES `order`, "
            "sku INTEGER REFERENCES products, qty INTEGER)": items,
        },
    )


def make_library(path: Path) -> Path:
    """Chinese columns and values, text keys, a table without row numbers, lists separated by 、, an empty table."""
    chosen = random.Random(2)
    names = [
        "".join(pair)
        for pair in zip(
            "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许", "安伯春德恩芳国海佳兰明宁平琴荣山涛文晓玉", strict=True
        )
    ]
    authors = [(f"A{n:03}", name, chosen.choice(("北京", "上海", "成都", "杭州")), chosen.randint(1920, 1995))
               for n, name in enumerate(names, 1)]  # fmt: skip
    heads, tails = (
        ("山中", "海上", "旧城", "春夜", "雪国", "长街", "孤岛"),
        ("来信", "笔记", "往事", "钟声", "行者", "灯火", "故人", "书简"),
    )
    books = [
        (f"B{n:04}", head + tail, chosen.choice(authors)[0], chosen.choice(("小说", "散文", "历史", "诗歌")),
         "、".join(chosen.sample(("爱情", "战争", "家庭", "旅行", "成长", "城市", "乡村"), chosen.randint(1, 3))),
         chosen.randint(90, 700), _day(chosen), chosen.choice(("是", "否")), chosen.choice((None, "精装", "平装")))
        for n, (head, tail) in enumerate(((head, tail) for head in heads for tail in tails), 1)
    ]  # fmt: skip
    return _write(
        path,
        {
            "CREATE TABLE 作者 (编号 TEXT PRIMARY KEY, 姓名 TEXT, 籍贯 TEXT, 出生年份 INTEGER) WITHOUT ROWID": authors,
            "CREATE TABLE 图书 (编号 TEXT PRIMARY KEY, 书名 TEXT, 作者编号 TEXT REFERENCES 作者 (编号), 类别 TEXT, "
            "主题 TEXT, 页数 INTEGER, 出版日期 TEXT, 是否馆藏 TEXT, 装帧 TEXT)": books,
            "CREATE TABLE 借阅 (编号 INTEGER PRIMARY KEY, 图书编号 TEXT, 日期 TEXT)": [],
        },
    )


def make_hospital(path: Path) -> Path:
    """Public data of a hospital, without declared keys: departments, doctors and treatments that name departments."""
    chosen = random.Random(3)
    named = [
        ("Cardiology", 2, 40), ("Radiology", 1, 5), ("Oncology", 3, 62), ("Neurology", 3, 38), ("Paediatrics", 4, 51),
        ("Surgery", 5, 77), ("Dermatology", 1, 12), ("Urology", 2, 20), ("Orthopaedics", 4, 45), ("Psychiatry", 6, 33),
    ]  # fmt: skip
    departments = [(f"D{n:02}", *rest, chosen.choice(("East", "West"))) for n, rest in enumerate(named, 1)]
    doctors = [
        (f"Dr {first} {last}", chosen.choice(departments)[0], "; ".join(sorted(chosen.sample(
            ("English", "French", "German", "Polish", "Arabic"), chosen.randint(1, 3)))), chosen.randint(1985, 2020),
         chosen.choice(("Y", "N")))
        for first, last in chosen.sample([(first, last) for first in _FIRST for last in _LAST], 60)
    ]  # fmt: skip
    treatments = [
        (f"{how} of the {part}", "; ".join(sorted(chosen.sample([d[1] for d in departments], chosen.randint(1, 2)))),
         f"A {chosen.choice(('short', 'long', 'gentle'))} procedure with {chosen.choice(('contrast', 'sedation', 'cooling'))} "
         f"for {chosen.choice(('adults', 'children', 'everybody'))}.", chosen.randint(50, 9000), chosen.randint(1, 14))
        for how in ("Scan", "Biopsy", "Repair", "Imaging", "Screening") for part in ("knee", "heart", "skin", "liver", "hip", "brain")
    ]  # fmt: skip
    return _write(
        path,
        {
            "CREATE TABLE departments (department_id TEXT, name TEXT, floor INTEGER, beds INTEGER, wing TEXT)": departments,
            "CREATE TABLE doctors (name TEXT, department_id TEXT, languages TEXT, start_year INTEGER, accepts_patients TEXT)": doctors,
            "CREATE TABLE treatments (title TEXT, offered_by TEXT, summary TEXT, price_eur INTEGER, `group` INTEGER)": treatments,
        },
    )


def _day(chosen: random.Random) -> str:
    return f"{chosen.randint(2019, 2023)}-{chosen.randint(1, 12):02}-{chosen.randint(1, 28):02}"


def _write(path: Path, tables: dict[str, Iterable[Sequence[object]]]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement, rows in tables.items():
            connection.execute(statement)
            name = statement.removeprefix("CREATE TABLE ").partition(" (")[0]
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    return path
