"""`kdi doctor`: is everything there that a run needs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.options import AsJson, Defs, NamesOfAllKinds, of_all_kinds
from kdi_assets.cli.output import exit_code, print_json, table_text
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings
from kdi_assets.wording import printable

if TYPE_CHECKING:
    from kdi_assets.operate.doctor.finding import Finding

HEAD = ("EXAMINATION", "OF", "VERDICT", "FOUND")


def doctor(tables: NamesOfAllKinds = None, defs: Defs = None, as_json: AsJson = False) -> None:
    """Examine everything that a run needs: documents, disk, packages, Java, jars, storage, Dagster, brokers, access
    rights and retention; of refined, served and announced tables whether what is new can be read, and whether the
    database or the topic answers.

    All examinations run at the same time, each with a timeout. Nothing is
    changed, and Spark is not started. A warning does not stop runs yet.

    Exit codes: 0 all fine, or warnings only; 1 something is wrong; 2 usage;
    75 something is wrong, and a retry helps.
    """
    from kdi_assets.documents.loading.loader import defs_folder, read_streams
    from kdi_assets.operate.doctor.doctor import examine
    from kdi_assets.operate.doctor.finding import Verdict

    folder = defs or defs_folder()
    loaded = read_streams(folder)
    chosen = of_all_kinds(loaded, tables or ())
    streams = [table for table in chosen if isinstance(table, Stream)]
    others = [table for table in chosen if not isinstance(table, Stream)]
    findings = examine(Settings.from_environment(), loaded, folder, streams=streams, others=others)
    if as_json:
        for finding in findings:
            own = {name: getattr(finding, name) for name in ("examination", "of", "verdict", "found", "facts")}
            print_json({**own, "error": finding.trouble})
    else:
        typer.echo(text(findings))
    wrong = [f.trouble for f in findings if f.trouble and f.verdict is Verdict.WRONG]
    if code := exit_code(wrong):
        raise typer.Exit(code)


def text(findings: Sequence[Finding]) -> str:
    """The table; after it every trouble once, in full."""
    rows = [(f.examination, printable(f.of), f.verdict.value, printable(f.found)) for f in findings]
    troubles = dict.fromkeys(str(f.trouble) for f in findings if f.trouble)
    return "\n".join([table_text(HEAD, rows, align="<<<<"), *troubles])
