"""The registry of stable codes: the one place where a code is spelled.

A code is for ever: it is never given another meaning, and a retired number is never used again. Numbers up to 06xx are
the catalogue the product was specified with; 0700-0719 engine, 0720-0739 files, 0740-0759 Postgres, 0760-0779 HTTP,
0780-0799 other connectors. The reference page `docs/errors.md` is generated from this registry.
"""

from __future__ import annotations

from enum import StrEnum

from pz.frozen import frozen

__all__ = ["CODES", "RETIRED", "Code", "CodeInfo"]


class Code(StrEnum):
    """Every code that the product can print; its meaning is in `CODES`."""

    PZ0101 = "PZ0101"
    PZ0102 = "PZ0102"
    PZ0103 = "PZ0103"
    PZ0104 = "PZ0104"
    PZ0110 = "PZ0110"
    PZ0111 = "PZ0111"
    PZ0113 = "PZ0113"
    PZ0120 = "PZ0120"
    PZ0121 = "PZ0121"
    PZ0122 = "PZ0122"
    PZ0123 = "PZ0123"
    PZ0124 = "PZ0124"
    PZ0125 = "PZ0125"
    PZ0126 = "PZ0126"
    PZ0127 = "PZ0127"
    PZ0130 = "PZ0130"
    PZ0131 = "PZ0131"
    PZ0132 = "PZ0132"
    PZ0133 = "PZ0133"
    PZ0134 = "PZ0134"
    PZ0135 = "PZ0135"
    PZ0136 = "PZ0136"
    PZ0137 = "PZ0137"
    PZ0201 = "PZ0201"
    PZ0202 = "PZ0202"
    PZ0204 = "PZ0204"
    PZ0205 = "PZ0205"
    PZ0206 = "PZ0206"
    PZ0208 = "PZ0208"
    PZ0209 = "PZ0209"
    PZ0210 = "PZ0210"
    PZ0211 = "PZ0211"
    PZ0212 = "PZ0212"
    PZ0213 = "PZ0213"
    PZ0214 = "PZ0214"
    PZ0215 = "PZ0215"
    PZ0216 = "PZ0216"
    PZ0217 = "PZ0217"
    PZ0218 = "PZ0218"
    PZ0219 = "PZ0219"
    PZ0221 = "PZ0221"
    PZ0222 = "PZ0222"
    PZ0223 = "PZ0223"
    PZ0224 = "PZ0224"
    PZ0225 = "PZ0225"
    PZ0227 = "PZ0227"
    PZ0229 = "PZ0229"
    PZ0230 = "PZ0230"
    PZ0231 = "PZ0231"
    PZ0232 = "PZ0232"
    PZ0301 = "PZ0301"
    PZ0305 = "PZ0305"
    PZ0311 = "PZ0311"
    PZ0312 = "PZ0312"
    PZ0313 = "PZ0313"
    PZ0314 = "PZ0314"
    PZ0315 = "PZ0315"
    PZ0316 = "PZ0316"
    PZ0317 = "PZ0317"
    PZ0318 = "PZ0318"
    PZ0319 = "PZ0319"
    PZ0324 = "PZ0324"
    PZ0330 = "PZ0330"
    PZ0331 = "PZ0331"
    PZ0334 = "PZ0334"
    PZ0335 = "PZ0335"
    PZ0336 = "PZ0336"
    PZ0337 = "PZ0337"
    PZ0338 = "PZ0338"
    PZ0339 = "PZ0339"
    PZ0340 = "PZ0340"
    PZ0341 = "PZ0341"
    PZ0344 = "PZ0344"
    PZ0345 = "PZ0345"
    PZ0349 = "PZ0349"
    PZ0351 = "PZ0351"
    PZ0353 = "PZ0353"
    PZ0361 = "PZ0361"
    PZ0362 = "PZ0362"
    PZ0363 = "PZ0363"
    PZ0364 = "PZ0364"
    PZ0365 = "PZ0365"
    PZ0401 = "PZ0401"
    PZ0500 = "PZ0500"
    PZ0501 = "PZ0501"
    PZ0502 = "PZ0502"
    PZ0503 = "PZ0503"
    PZ0504 = "PZ0504"
    PZ0505 = "PZ0505"
    PZ0506 = "PZ0506"
    PZ0507 = "PZ0507"
    PZ0508 = "PZ0508"
    PZ0510 = "PZ0510"
    PZ0511 = "PZ0511"
    PZ0512 = "PZ0512"
    PZ0513 = "PZ0513"
    PZ0514 = "PZ0514"
    PZ0515 = "PZ0515"
    PZ0516 = "PZ0516"
    PZ0517 = "PZ0517"
    PZ0518 = "PZ0518"
    PZ0519 = "PZ0519"
    PZ0520 = "PZ0520"
    PZ0521 = "PZ0521"
    PZ0522 = "PZ0522"
    PZ0523 = "PZ0523"
    PZ0524 = "PZ0524"
    PZ0525 = "PZ0525"
    PZ0526 = "PZ0526"
    PZ0527 = "PZ0527"
    PZ0528 = "PZ0528"
    PZ0529 = "PZ0529"
    PZ0530 = "PZ0530"
    PZ0531 = "PZ0531"
    PZ0532 = "PZ0532"
    PZ0533 = "PZ0533"
    PZ0534 = "PZ0534"
    PZ0535 = "PZ0535"
    PZ0536 = "PZ0536"
    PZ0700 = "PZ0700"
    PZ0701 = "PZ0701"
    PZ0702 = "PZ0702"
    PZ0703 = "PZ0703"
    PZ0704 = "PZ0704"
    PZ0705 = "PZ0705"
    PZ0706 = "PZ0706"
    PZ0707 = "PZ0707"
    PZ0708 = "PZ0708"
    PZ0709 = "PZ0709"
    PZ0710 = "PZ0710"
    PZ0711 = "PZ0711"
    PZ0712 = "PZ0712"
    PZ0713 = "PZ0713"
    PZ0714 = "PZ0714"
    PZ0716 = "PZ0716"
    PZ0717 = "PZ0717"
    PZ0718 = "PZ0718"
    PZ0719 = "PZ0719"
    PZ0720 = "PZ0720"
    PZ0721 = "PZ0721"
    PZ0722 = "PZ0722"
    PZ0723 = "PZ0723"
    PZ0724 = "PZ0724"
    PZ0780 = "PZ0780"
    PZ0781 = "PZ0781"
    PZ0740 = "PZ0740"
    PZ0741 = "PZ0741"
    PZ0742 = "PZ0742"
    PZ0743 = "PZ0743"
    PZ0744 = "PZ0744"
    PZ0745 = "PZ0745"
    PZ0746 = "PZ0746"
    PZ0747 = "PZ0747"
    PZ0748 = "PZ0748"
    PZ0749 = "PZ0749"
    PZ0750 = "PZ0750"
    PZ0760 = "PZ0760"
    PZ0761 = "PZ0761"
    PZ0762 = "PZ0762"
    PZ0763 = "PZ0763"
    PZ0764 = "PZ0764"
    PZ0765 = "PZ0765"
    PZ0766 = "PZ0766"
    PZ0767 = "PZ0767"
    PZ0768 = "PZ0768"
    PZ0769 = "PZ0769"
    PZ0770 = "PZ0770"
    PZ0771 = "PZ0771"


@frozen
class CodeInfo:
    """What a code means: the phase that raises it, its meaning, and the default hint (empty: none)."""

    phase: str
    meaning: str
    hint: str = ""


CODES: dict[Code, CodeInfo] = {
    Code.PZ0101: CodeInfo(
        "load",
        "A project YAML file is not valid YAML, has the wrong shape, or holds an unknown key.",
        "Correct the named file; the project reference lists the keys.",
    ),
    Code.PZ0102: CodeInfo(
        "load",
        "The variables are not a mapping: `--vars` takes a JSON object, `vars:` a YAML mapping.",
        'Write `--vars \'{"name": "value"}\'`, or a mapping under `vars:`.',
    ),
    Code.PZ0103: CodeInfo(
        "load, render",
        "`env()` or `${VAR}` names an environment variable that is not set, or holds no UTF-8 text.",
        "Set the variable, or write `$${` for a literal `${`.",
    ),
    Code.PZ0104: CodeInfo(
        "render",
        "A pipeline's template cannot be parsed or rendered.",
        "Use only source, ref, sink, watermark, var, env, this, run_id and run_started_at.",
    ),
    Code.PZ0110: CodeInfo(
        "load, compile",
        "Two pipelines, or two datasets, end up with the same name; case does not tell them apart.",
        "Rename one of the two.",
    ),
    Code.PZ0111: CodeInfo(
        "load",
        "A configuration file names a pipeline that no SQL file defines.",
        "Correct `pipeline:` in the file, or remove the file.",
    ),
    Code.PZ0113: CodeInfo(
        "load",
        "A check is of an unknown type, has a wrong or unknown option, or repeats another one.",
        "Correct or remove the check.",
    ),
    Code.PZ0120: CodeInfo(
        "load",
        "The `engine:` block has a wrong shape, a value out of range, or an unknown key.",
        "Correct the named key; numbers are written without quotes.",
    ),
    Code.PZ0121: CodeInfo(
        "load, render",
        "A `retry:` block has a wrong shape, a value out of bounds, or an unknown key.",
        "Give max_attempts, base_delay and max_delay; durations look like 500ms or 2m.",
    ),
    Code.PZ0122: CodeInfo(
        "load, render",
        "`max_concurrency:` is not a whole number of at least 1, or stands on a call.",
        "Put a whole number of at least 1 on the connection.",
    ),
    Code.PZ0123: CodeInfo(
        "load",
        "`retention:` is malformed, or would keep less than one run.",
        "Write `retention: off`, or `keep_last:` with 1 or more.",
    ),
    Code.PZ0124: CodeInfo(
        "load",
        "The `state:` block is invalid, names an unknown backend, or has keys of another backend.",
        "Correct, remove or move the named key.",
    ),
    Code.PZ0125: CodeInfo(
        "load",
        "The state connection is missing or of the wrong kind, or a remote store has no credentials.",
        "Name a connection of the right kind, or set the variable that is named.",
    ),
    Code.PZ0126: CodeInfo("load", "`on_source_drift:` is not one of the three policies.", "Use ignore, warn or fail."),
    Code.PZ0127: CodeInfo(
        "schema accept",
        "There is no recorded schema to accept for this dataset.",
        "Run the dataset again, so that its schema is observed, then accept it.",
    ),
    Code.PZ0130: CodeInfo("init", "The target directory is not empty.", "Choose another directory, or empty this one."),
    Code.PZ0131: CodeInfo(
        "init", "There is no template of this name.", "List the templates with `pz init --list-templates`."
    ),
    Code.PZ0132: CodeInfo(
        "init", "`pz init` got neither a name nor `--list-templates`, or both.", "Give exactly one of the two."
    ),
    Code.PZ0133: CodeInfo(
        "load, warning",
        "`${VAR}` stands in an entity block, where it is never substituted.",
        "Move the option to the connection, where variables are substituted.",
    ),
    Code.PZ0134: CodeInfo("load", "`materialization:` is not one that exists.", "Use table, view or ephemeral."),
    Code.PZ0135: CodeInfo(
        "load, warning",
        "A YAML file does not have the name under which it would be read; an error where `connections.yml` is missing.",
        "Rename or move it as the message says.",
    ),
    Code.PZ0136: CodeInfo(
        "load",
        "A pipeline or connection name is not a plain identifier, or a connection name holds `__`.",
        "Use letters, digits and single underscores, beginning with a letter.",
    ),
    Code.PZ0137: CodeInfo(
        "compile",
        "An option has a value that cannot be written down exactly, such as an infinite number.",
        "Use text, a finite number, true or false, a list or a mapping.",
    ),
    Code.PZ0201: CodeInfo(
        "render, compile",
        "`ref`, `source` or `sink` names something unknown, or has the wrong arguments.",
        "Check the spelling against `pz ls` and `connections.yml`.",
    ),
    Code.PZ0202: CodeInfo(
        "compile",
        "Pipelines refer to each other in a circle.",
        "Remove one of the references on the path that is shown.",
    ),
    Code.PZ0204: CodeInfo(
        "compile", "An ephemeral pipeline refers to another ephemeral one.", "Make one of the two a table or a view."
    ),
    Code.PZ0205: CodeInfo(
        "compile",
        "An ephemeral pipeline has checks, but nothing is materialised that they could look at.",
        "Make it a table or a view, or move the checks to a pipeline that reads it.",
    ),
    Code.PZ0206: CodeInfo(
        "compile",
        "The same output is loaded twice: by two pipelines, or under two names.",
        "Keep one writer for each output; combine the two with UNION ALL.",
    ),
    Code.PZ0208: CodeInfo(
        "render",
        "A `sink()` call is malformed or stands in the wrong place.",
        "Begin the pipeline with INSERT INTO {{ sink('connection', 'entity') }}.",
    ),
    Code.PZ0209: CodeInfo(
        "compile", "An output is merged but declares no keys.", "Add `keys:` with the columns that identify a row."
    ),
    Code.PZ0210: CodeInfo(
        "selection", "A selector, or a flow name, matches no node.", "Look at the names that `pz ls` prints."
    ),
    Code.PZ0211: CodeInfo(
        "compile", "An output declares keys but is not merged.", "Remove `keys:`, or use `strategy: merge`."
    ),
    Code.PZ0212: CodeInfo(
        "compile",
        "The cursor is not in the column contract, or has a type that cannot be a cursor.",
        "Declare it as int, bigint, decimal, date, timestamp or timestamptz.",
    ),
    Code.PZ0213: CodeInfo(
        "compile",
        "The settings of a read window break a rule.",
        "Correct the named key; a window needs `initial` and `max_window`.",
    ),
    Code.PZ0214: CodeInfo(
        "compile, plan",
        "A read that may repeat rows feeds an append output without consent.",
        "Use `strategy: merge` with `keys:`, or accept repeats with `duplicates: accept`.",
    ),
    Code.PZ0215: CodeInfo(
        "selection",
        "The project has several unconnected flows, and the command does not say which to run.",
        "Name a flow, select with `--select`, or run everything with `--all`.",
    ),
    Code.PZ0216: CodeInfo("selection", "Flow names, `--select` and `--all` are combined.", "Use one of the three."),
    Code.PZ0217: CodeInfo(
        "compile",
        "A path has date tokens, but the dataset has no date or timestamp cursor.",
        "Declare a date or timestamp cursor, or take the tokens out of the path.",
    ),
    Code.PZ0218: CodeInfo(
        "compile",
        "The date tokens of a path are unknown, or leave a gap between coarse and fine.",
        "Use {yyyy} {MM} {dd} {HH} {mm} from coarse to fine, without a gap.",
    ),
    Code.PZ0219: CodeInfo(
        "compile",
        "`partition_by` is not a list of columns, or disagrees with the tokens of the path.",
        "Name existing columns, and bring path and `partition_by` into line.",
    ),
    Code.PZ0221: CodeInfo(
        "compile",
        "A path has date tokens, but the dataset is not read in windows.",
        "Add `initial` and `max_window` to the `sync:` block.",
    ),
    Code.PZ0222: CodeInfo("compile", "`files_per_partition` is not a positive whole number.", "Use 1 or more."),
    Code.PZ0223: CodeInfo(
        "compile, warning",
        "The result of a pipeline is neither loaded anywhere nor used by another pipeline.",
        "Load it, refer to it, or remove the pipeline.",
    ),
    Code.PZ0224: CodeInfo(
        "compile",
        "A comparison with `watermark()` is not of a form that can be understood.",
        "Compare a column of that dataset: `cursor > expression with one watermark() call`.",
    ),
    Code.PZ0225: CodeInfo(
        "compile", "A dataset is incremental in YAML and in SQL at once.", "Keep one; a windowed read belongs in YAML."
    ),
    Code.PZ0227: CodeInfo(
        "compile",
        "The column compared with `watermark()` is not in the contract, or has an unsupported type.",
        "Declare it as int, bigint, decimal, date, timestamp or timestamptz.",
    ),
    Code.PZ0229: CodeInfo(
        "compile", "A dataset is read in descending cursor order with a limit on the pages.", "Remove one of the two."
    ),
    Code.PZ0230: CodeInfo("compile", "A pipeline has the name of a source's staging relation.", "Rename the pipeline."),
    Code.PZ0231: CodeInfo(
        "compile", "The `watermark()` comparisons of a dataset use different columns.", "Use one column in all of them."
    ),
    Code.PZ0232: CodeInfo(
        "compile, warning",
        "The SQL contains the run id or the start of the run, so it differs from run to run.",
        "Expect `pz retry` to run this pipeline and what depends on it again.",
    ),
    Code.PZ0301: CodeInfo(
        "validate",
        "An option of a connection, dataset or output is unknown to the connector, or has a wrong value.",
        "See the connector's options with `pz connectors`.",
    ),
    Code.PZ0305: CodeInfo(
        "validate, run",
        "A connector is not installed.",
        "Correct `connector:`, or install the package that provides it.",
    ),
    Code.PZ0311: CodeInfo(
        "run; validate: warning",
        "A statement that prepares DuckDB failed: an extension, a secret, a setting or an attach.",
        "Check the connection's options, and that the extension can be loaded.",
    ),
    Code.PZ0312: CodeInfo(
        "plan",
        "The dataset needs a way of moving that the connector does not have, or that is switched off.",
        "Remove the option or setting that forces the way, or use another connector.",
    ),
    Code.PZ0313: CodeInfo(
        "plan",
        "A dataset has an upper bound, but its connector cannot stop at one.",
        "Remove the window or the upper bound, or use another connector.",
    ),
    Code.PZ0314: CodeInfo(
        "plan",
        "Date tokens or `partition_by` are used with a connector that does not support them.",
        "Remove them, or use another connector.",
    ),
    Code.PZ0315: CodeInfo("compile, plan", "A dataset would be resumed in two ways at once.", "Keep one of the two."),
    Code.PZ0316: CodeInfo(
        "plan, run",
        "A read that resumes from one token or log position is split into several parts.",
        "Remove the partitioning options; one position cannot stand for several parts.",
    ),
    Code.PZ0317: CodeInfo(
        "plan", "`rate_limit:` stands on a connection whose connector does not pace its calls.", "Remove `rate_limit:`."
    ),
    Code.PZ0318: CodeInfo(
        "load, render",
        "`rate_limit:` is malformed, out of bounds, or not on the connection.",
        "Put it on the connection, with requests_per_minute from 1 to 1000000.",
    ),
    Code.PZ0319: CodeInfo(
        "plan, run",
        "A connector promised stable partition ids but gave none, or the same one twice.",
        "Report it to the author of the connector.",
    ),
    Code.PZ0324: CodeInfo(
        "plan",
        "The connector cannot write with this strategy.",
        "Use one of the strategies that `pz connectors` lists for it.",
    ),
    Code.PZ0330: CodeInfo(
        "validate --connect, plan --connect, run",
        "The connection could not be established, also not when a run asked again before it moved anything (exit 2).",
        "Check host, port and credentials, or the path; where the system was only down, run again: nothing was moved.",
    ),
    Code.PZ0331: CodeInfo(
        "validate, run",
        "The columns of the source differ from the contract, or from what was accepted earlier.",
        "Correct the contract, or accept the change with `pz schema accept`.",
    ),
    Code.PZ0334: CodeInfo("load, render", "A `sync:` block or a write setting is invalid.", "Correct the named key."),
    Code.PZ0335: CodeInfo(
        "compile, plan",
        "This way of reading and this way of writing would lose rows together.",
        "Use `strategy: merge`, or remove `sync:` for a full read.",
    ),
    Code.PZ0336: CodeInfo(
        "compile",
        "An output that is fed by change capture does not say what happens to deletes.",
        "Add `on_delete:` with delete, soft or ignore.",
    ),
    Code.PZ0337: CodeInfo(
        "compile",
        "`on_delete` stands on an output that deletes cannot reach.",
        "Remove `on_delete`, or read one captured table and pass its keys through unchanged.",
    ),
    Code.PZ0338: CodeInfo(
        "plan, run",
        "The connector has no change capture, or its change rows break the contract.",
        "Use another connector; if it should have it, report it to the connector's author.",
    ),
    Code.PZ0339: CodeInfo(
        "plan",
        "The connector cannot apply deletes, or cannot remove what a snapshot does not hold.",
        "Use `on_delete: ignore`, drop `snapshot_delete_limit`, or use another connector.",
    ),
    Code.PZ0340: CodeInfo(
        "run",
        "A merge key is missing or NULL in the deletes of a captured table.",
        "Pass the keys through the pipeline unchanged.",
    ),
    Code.PZ0341: CodeInfo(
        "load, render", "The options of one entity are declared in YAML and in the call.", "Keep one of the two places."
    ),
    Code.PZ0344: CodeInfo(
        "load, render", "An entity name is empty, has an empty part, or contains white space.", "Correct the name."
    ),
    Code.PZ0345: CodeInfo(
        "validate",
        "A connector claims an option that belongs to the engine.",
        "Report it to the author of the connector.",
    ),
    Code.PZ0349: CodeInfo(
        "compile",
        "Several pipelines read the same dataset.",
        "Read it in one pipeline, and let the others refer to that one.",
    ),
    Code.PZ0351: CodeInfo(
        "compile",
        "A dataset read with `watermark()` has an upper bound but no lower one.",
        "Add a lower bound, or write the upper one as a filter without `watermark()`.",
    ),
    Code.PZ0353: CodeInfo(
        "plan",
        "The connector cannot read this entity: a file is missing, or the header contradicts the contract.",
        "Correct the contract or the entity.",
    ),
    Code.PZ0361: CodeInfo(
        "validate, plan",
        "The format is not supported here, for reading or for writing.",
        "Use one of the formats that are listed, or another connector.",
    ),
    Code.PZ0362: CodeInfo(
        "validate, plan",
        "An option does not belong to the format, or has a wrong value.",
        "Remove or correct the option.",
    ),
    Code.PZ0363: CodeInfo(
        "plan",
        "A dataset that resumes from a token is on a connector that cannot carry tokens.",
        "Read it in full or by a cursor, or use another connector.",
    ),
    Code.PZ0364: CodeInfo(
        "validate, warning",
        "The connector warns about its configuration.",
        "Read the connector's text, and change the option if you do not want the risk.",
    ),
    Code.PZ0365: CodeInfo(
        "validate, plan",
        "A relative path leads out of the declared root.",
        "Use an absolute path, or move the root up.",
    ),
    Code.PZ0401: CodeInfo(
        "before a run",
        "The SQL of a pipeline does not compile against the declared columns, or against what was read.",
        "Correct the SQL or the column contract; the message is DuckDB's.",
    ),
    Code.PZ0500: CodeInfo(
        "any",
        "Something happened that should not: a defect. The exit code is 3.",
        "Report it; with PZ_DEBUG=1 the stack is printed.",
    ),
    Code.PZ0501: CodeInfo(
        "run",
        "A node failed for a reason that has no code of its own.",
        "Read the message; `pz retry` continues when the cause is gone.",
    ),
    Code.PZ0502: CodeInfo(
        "retry",
        "There is no earlier run to continue, or none of that name.",
        "Start one with `pz run`; `pz runs` lists what there is.",
    ),
    Code.PZ0503: CodeInfo(
        "retry",
        "The earlier run has not finished, and its process is still there.",
        "Wait for it, or end the process that is named.",
    ),
    Code.PZ0504: CodeInfo("retry", "The last run ended before anything moved.", "Start a new run."),
    Code.PZ0505: CodeInfo(
        "run",
        "The cursor is not there, arrived with an unsupported type, or one that differs from the declared or stored type.",
        "Correct the contract, or start over with `--full-refresh`.",
    ),
    Code.PZ0506: CodeInfo(
        "run",
        "The connection failed too often and is left alone for a while.",
        "Wait for the time that is named, then run `pz retry`.",
    ),
    Code.PZ0507: CodeInfo("cdc drop", "The command needs exactly one dataset.", "Give one `connection.entity`."),
    Code.PZ0508: CodeInfo(
        "cdc drop",
        "Nothing is captured for the dataset, or its connection is gone.",
        "Check the name against `pz cdc status`.",
    ),
    Code.PZ0510: CodeInfo(
        "run, test", "A check found rows that break it.", "Run the statements that are shown to see the rows."
    ),
    Code.PZ0511: CodeInfo("clean", "`--keep-last` and `--older-than` are given together.", "Use one of the two."),
    Code.PZ0512: CodeInfo(
        "clean", "The value of a selector cannot be used.", "Give a number of runs, or a duration such as 7d."
    ),
    Code.PZ0513: CodeInfo(
        "state", "There is no stored watermark under this key.", "List the keys with `pz state show`."
    ),
    Code.PZ0514: CodeInfo(
        "state rollback",
        "The run recorded no watermark for this key that could be used.",
        "Choose another run from `pz runs`.",
    ),
    Code.PZ0515: CodeInfo(
        "state",
        "The value does not fit: not of the cursor's type, not earlier than, or equal to the current one.",
        "Correct the value; `pz state set` moves forward, `clear` starts over.",
    ),
    Code.PZ0516: CodeInfo(
        "state, cdc drop",
        "A required option is missing, or nobody is there to confirm.",
        "Add the option that is named; `--yes` confirms.",
    ),
    Code.PZ0517: CodeInfo(
        "state", "A run is in progress, so state cannot be changed now.", "Wait for the run that is named."
    ),
    Code.PZ0518: CodeInfo(
        "state",
        "The state store cannot be reached, or refuses the credentials.",
        "Check the address and the credentials of the store.",
    ),
    Code.PZ0519: CodeInfo(
        "state",
        "The state store was made by a newer version, or could not be migrated.",
        "Upgrade pz, or check the rights on the store.",
    ),
    Code.PZ0520: CodeInfo(
        "state",
        "Another run has moved this dataset on, or had this output, in the meantime.",
        "Run again; the next run catches up.",
    ),
    Code.PZ0521: CodeInfo("run", "A merge key is NULL.", "Filter the rows out, or fill the key in the pipeline."),
    Code.PZ0522: CodeInfo(
        "run, warning",
        "Several rows have the same merge key; one of them was kept.",
        "Deduplicate in the pipeline, or say which row wins with `dedupe_by:`.",
    ),
    Code.PZ0523: CodeInfo(
        "run, warning",
        "Whole numbers beyond 2^53 were taken for floating point, which may change them.",
        "Declare the column as bigint or decimal.",
    ),
    Code.PZ0524: CodeInfo(
        "run, warning",
        "It could not be told whether day or month comes first in a date.",
        "Use ISO dates, or read the column as varchar and parse it.",
    ),
    Code.PZ0525: CodeInfo(
        "run",
        "A node took longer than `engine.node_timeout`.",
        "Raise the limit, or find out what it waited for; `pz retry` runs it again.",
    ),
    Code.PZ0526: CodeInfo(
        "run",
        "A node that timed out could not be stopped, so the rest of the run was cancelled.",
        "Look at the system it was talking to, then run `pz retry`.",
    ),
    Code.PZ0527: CodeInfo(
        "after a run",
        "The outputs have committed, but some state could not be stored.",
        "Run again: what was not recorded is read again.",
    ),
    Code.PZ0528: CodeInfo("state", "Another process is migrating the state store.", "Try again in a moment."),
    Code.PZ0529: CodeInfo(
        "state",
        "The state store answered, but the operation failed.",
        "Try again if the message calls it temporary; otherwise check the store.",
    ),
    Code.PZ0530: CodeInfo("state, warning", "A token would travel over plain http.", "Use https."),
    Code.PZ0531: CodeInfo(
        "any", "Permission was denied for a path of the project.", "Check owner and mode of the path."
    ),
    Code.PZ0532: CodeInfo("any", "The disk is full.", "Free space, then run `pz retry`."),
    Code.PZ0533: CodeInfo("any", "A file is held by another process.", "Close the program that uses the file."),
    Code.PZ0534: CodeInfo("runs, show, run", "The limit is below 1.", "Give a positive number."),
    Code.PZ0535: CodeInfo("completion", "The shell is unknown.", "Use bash, zsh, fish or pwsh."),
    Code.PZ0536: CodeInfo(
        "state",
        "A key or value is longer than its column in the remote store.",
        "Use shorter names, or keep the state local.",
    ),
    Code.PZ0700: CodeInfo(
        "command line",
        "The command line is not understood: an unknown verb or option, a missing or unusable value.",
        "See `pz --help`.",
    ),
    Code.PZ0701: CodeInfo(
        "run",
        "Another run holds a dataset or an output of this run, and did not let go within 30 seconds.",
        "Run again when the run that is named has ended, or select other flows.",
    ),
    Code.PZ0702: CodeInfo(
        "run", "The run directory could not be created or locked.", "Check that the named path can be written."
    ),
    Code.PZ0703: CodeInfo(
        "retry",
        "The run to continue belongs to a process that is still there, perhaps stopped.",
        "Wait for it or end it; the lock is released with the process.",
    ),
    Code.PZ0704: CodeInfo(
        "run",
        "Whether a commit happened is unknown, and nothing could settle it.",
        "Look at the destination; `pz retry` delivers again as the output's consent allows.",
    ),
    Code.PZ0705: CodeInfo(
        "run",
        "Stored state was earned otherwise: another source, path, cursor, output, slot or way of reading.",
        "Use `--full-refresh`, for a slot `pz cdc drop`, or `start: from_state` for a new output or path.",
    ),
    Code.PZ0706: CodeInfo(
        "state",
        "A state file is damaged, or was written by a newer version.",
        "Restore the file from a backup; removing it makes every dataset in it start over.",
    ),
    Code.PZ0707: CodeInfo(
        "retry", "The record or the results of a run are damaged and could not be rebuilt.", "Start a new run."
    ),
    Code.PZ0708: CodeInfo(
        "run",
        "The staging database of a run cannot be opened, or its directory was removed while the run was going on.",
        "Check the named path; a new run starts with a new one.",
    ),
    Code.PZ0709: CodeInfo(
        "run",
        "An output was given other rows earlier in this chain of retries; its state is not advanced.",
        "Start a new run.",
    ),
    Code.PZ0710: CodeInfo(
        "run, warning",
        "The results file of a run could not be written; the run goes on.",
        "Check the named path; until a later write succeeds, the file shows an older state of the run.",
    ),
    Code.PZ0711: CodeInfo(
        "compile, plan, run, warning",
        "SQL is computed over a slice of a dataset and would be right only over the whole.",
        "Read the whole and replace the output, or deliver the rows and compute downstream; see the guarantees.",
    ),
    Code.PZ0712: CodeInfo(
        "run",
        "Rows of an incremental dataset have no cursor value.",
        "Fill the cursor at the source, or declare `null_cursor: include` or `null_cursor: refuse` under sync.",
    ),
    Code.PZ0713: CodeInfo(
        "run, warning or note",
        "Something about the state or the slice of an incremental dataset is worth knowing: say, rows that come twice.",
        "Read the message; nothing has to be done if it is expected.",
    ),
    Code.PZ0714: CodeInfo(
        "run, note",
        "State was not advanced because not every output below the dataset has committed in this run.",
        "Run the whole flow, or continue with `pz retry`.",
    ),
    Code.PZ0716: CodeInfo(
        "run, test, warning",
        "`--vars` gives a variable that the project neither declares nor uses.",
        "Correct the name, or leave it out.",
    ),
    Code.PZ0717: CodeInfo(
        "validate, run, test, note",
        "There is nothing to do: the project has no pipelines, or no checks.",
        "Add a pipeline or a check; see the quickstart.",
    ),
    Code.PZ0718: CodeInfo(
        "run, warning",
        "A dataset is not read by change capture any more: its deletes are not followed, and its source keeps its log.",
        "Let go of it with `pz cdc drop`; `pz cdc status` shows how much is kept.",
    ),
    Code.PZ0719: CodeInfo(
        "validate, plan, run, warning",
        "A dataset reads what an output of the same run writes; which of the two comes first is not guaranteed.",
        "Read the pipeline with `ref()` instead of its output, or run the two one after the other.",
    ),
    Code.PZ0720: CodeInfo(
        "run", "No file matches the path of a dataset.", "Correct the path, or declare `missing: empty`."
    ),
    Code.PZ0721: CodeInfo(
        "run",
        "A file changed while it was read, or since the run that a retry continues.",
        "Run again when the file is complete.",
    ),
    Code.PZ0722: CodeInfo(
        "run", "A file cannot be read in its declared format.", "Correct the file, its format or its columns."
    ),
    Code.PZ0723: CodeInfo("run", "The destination's format cannot hold a value.", "Cast the column in the pipeline."),
    Code.PZ0724: CodeInfo(
        "plan, run",
        "Something else stands where a file or its directory belongs, say a link that leads nowhere, or a pipe.",
        "Move away what stands there, or correct `root` or `path`.",
    ),
    Code.PZ0780: CodeInfo(
        "run",
        "A table of a DuckDB file cannot take what is written: other columns or types, or a constraint.",
        "Align columns and types with the table; `schema_policy: additive` adds columns and changes no type.",
    ),
    Code.PZ0781: CodeInfo(
        "run", "A file is not a DuckDB database that this version can open.", "Correct the `path` of the connection."
    ),
    Code.PZ0740: CodeInfo(
        "probe, run",
        "A column of a PostgreSQL table has a type, or a value, that cannot be held exactly.",
        "Declare the column as varchar (or another type that holds it) under `columns:`, or cast it in `query:`.",
    ),
    Code.PZ0741: CodeInfo(
        "probe, run",
        "A PostgreSQL table cannot be written as asked: it is missing something, or a column does not fit.",
        "Correct what the message names, in the table or in the pipeline.",
    ),
    Code.PZ0742: CodeInfo(
        "probe, run",
        "The target of a merge has no unique index on exactly the merge keys.",
        "Create the unique index; a partial, deferrable or expression index does not count.",
    ),
    Code.PZ0743: CodeInfo(
        "probe, run",
        "A prerequisite of change capture is not met on the PostgreSQL server.",
        "Run the statements that the message names.",
    ),
    Code.PZ0744: CodeInfo(
        "run",
        "Changes were lost: the replication slot is gone, was invalidated, or has moved past the stored position.",
        "Run with `--full-refresh`; a declared slot that was invalidated has to go by `pz cdc drop` before that.",
    ),
    Code.PZ0745: CodeInfo(
        "run",
        "An update did not carry all columns, and what it left out could not be found.",
        "Set REPLICA IDENTITY FULL on the table, then run once with `--full-refresh`.",
    ),
    Code.PZ0746: CodeInfo(
        "run",
        "A captured table was truncated; a merge cannot follow that.",
        "Run with `--full-refresh`; with `on_delete: ignore`, or over `snapshot_delete_limit`, empty the target first.",
    ),
    Code.PZ0747: CodeInfo(
        "probe, run",
        "A PostgreSQL table or view to be read does not exist or is not visible, or the server refuses a query.",
        "Check schema and name (names are exact), the privileges of the role, and the text of `query:`.",
    ),
    Code.PZ0748: CodeInfo(
        "run",
        "A captured table changed its columns inside the window in a way that cannot be followed.",
        "Run with `--full-refresh` after the change.",
    ),
    Code.PZ0749: CodeInfo(
        "run",
        "A snapshot of a captured table would remove more rows of the target than the limit allows.",
        "Check that the target is the right one; to let them go, set `snapshot_delete_limit: 1` on the output.",
    ),
    Code.PZ0750: CodeInfo(
        "plan",
        "Two captured datasets would share a replication slot whose name was made from theirs.",
        "Give one of them a name of its own with `sync: { slot: ... }`.",
    ),
    Code.PZ0760: CodeInfo(
        "plan, run",
        "The options of an HTTP connection, dataset or output cannot work together.",
        "Correct the options that are named; all faults are listed at once.",
    ),
    Code.PZ0761: CodeInfo(
        "run",
        "An HTTP server refused a request with a status that another attempt would not change.",
        "Read what the server says, and check path, query and credentials.",
    ),
    Code.PZ0762: CodeInfo(
        "run",
        "An HTTP server could not be reached, was too slow, or answered with a status that may pass.",
        "Run `pz retry` later; raise `retry:` or `timeout_seconds` if it happens often.",
    ),
    Code.PZ0763: CodeInfo(
        "run",
        "A redirect, a next link or a token leads to another origin than the connection's, or nowhere.",
        "Add the host to `allow_hosts` if it may get the connection's credentials.",
    ),
    Code.PZ0764: CodeInfo(
        "run",
        "The pagination does not advance, has no end, or contradicts what the API tells about its total.",
        "Compare `pagination` with the API's documentation.",
    ),
    Code.PZ0765: CodeInfo(
        "run",
        "An HTTP response is cut off, too large, of another format, or without the declared records.",
        "Check format, compression, items and max_response_mb.",
    ),
    Code.PZ0766: CodeInfo(
        "run",
        "A record of an HTTP response does not fit the declared columns.",
        "Correct the type in `columns`; varchar takes any json value.",
    ),
    Code.PZ0767: CodeInfo(
        "run",
        "The token that was stored for a feed has expired, or is none.",
        "Run again with `--full-refresh`, which reads everything and stores a new token.",
    ),
    Code.PZ0768: CodeInfo(
        "run",
        "An API refused some rows of a request; those that it accepted are not sent again.",
        "Correct the rows that are told, and run `pz retry`.",
    ),
    Code.PZ0769: CodeInfo(
        "run",
        "Rows to append were sent and no answer came: nobody knows whether they are there.",
        "`pz retry` sends them again; `idempotency_header` makes that safe where the API honours it.",
    ),
    Code.PZ0770: CodeInfo(
        "run",
        "`max_pages` ended an incremental read whose records do not come in ascending order.",
        "Raise `max_pages`, or ask the API for ascending cursor order.",
    ),
    Code.PZ0771: CodeInfo(
        "run",
        "No OAuth2 access token could be had.",
        "Check client_id, client_secret, scope and token_url in `auth:`.",
    ),
}

# Numbers that are retired, reserved or belong to features that this product does not have; never given a new meaning.
RETIRED = frozenset(
    {
        "PZ0112",
        "PZ0203",
        "PZ0207",
        "PZ0220",
        "PZ0226",
        "PZ0228",
        "PZ0304",
        "PZ0306",
        "PZ0307",
        "PZ0320",
        "PZ0321",
        "PZ0322",
        "PZ0323",
        "PZ0325",
        "PZ0326",
        "PZ0327",
        "PZ0328",
        "PZ0329",
        "PZ0332",
        "PZ0333",
        "PZ0343",
        "PZ0346",
        "PZ0347",
        "PZ0348",
        "PZ0352",
        "PZ0354",
        "PZ0355",
        "PZ0356",
        "PZ0357",
        "PZ0358",
        "PZ0359",
        "PZ0360",
    }
)
