#!/usr/bin/env python3
"""Prints the slowest tests of a JUnit report: slowest-tests.py REPORT COUNT."""

import sys
import xml.etree.ElementTree as ElementTree

report, count = sys.argv[1], int(sys.argv[2])
cases = ElementTree.parse(report).iter("testcase")
rows = sorted(((float(case.get("time", 0)), case.get("classname"), case.get("name")) for case in cases), reverse=True)
print(f"\n    the {min(count, len(rows))} slowest of {len(rows)} tests, {sum(row[0] for row in rows):.0f} s in total:")
for seconds, package, name in rows[:count]:
    print(f"    {seconds:8.1f} s  {package} {name}")
