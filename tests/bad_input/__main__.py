"""Write docs/bad-input.md."""

from tests.bad_input.table import CASES, PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(CASES)} kinds of bad input")
