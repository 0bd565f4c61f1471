"""The registry of stable codes: the one place where a code is spelled.

A code is for ever: it is never given another meaning, and a retired number is never used again. Numbers up to 06xx are
the catalogue the product was specified with; 0700-0719 engine, 0720-0739 files, 0740-0759 Postgres, 0760-0779 HTTP,
0780-0799 other connectors. The reference page `docs/errors.md` is generated from this registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    PZ0720 = "PZ0720"
    PZ0721 = "PZ0721"
    PZ0722 = "PZ0722"
    PZ0723 = "PZ0723"


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What a code means: the phase that raises it, its meaning, and the default hint (empty: none)."""

    phase: str
    meaning: str
    hint: str = ""


CODES: dict[Code, CodeInfo] = {
    Code.PZ0101: CodeInfo(
        "load",
        "A project YAML file is malformed: not YAML, wrong shape, or (sidecar and others) an unknown key",
        "Did-you-mean for the key; otherwise ~fix the named file",
    ),
    Code.PZ0102: CodeInfo(
        "CLI start", "`--vars` text is not JSON, or is JSON but not an object", "Must be a JSON object"
    ),
    Code.PZ0103: CodeInfo(
        "load, render", "`env()` or `${VAR}` names a variable that is not set", "Set the named variable"
    ),
    Code.PZ0104: CodeInfo(
        "render",
        "Template cannot be parsed or rendered (other than an unset variable)",
        'Keep a source/sink call on one line; or the list of callable functions and constants; unknown var gets a near miss or "declare it"',
    ),
    Code.PZ0110: CodeInfo(
        "load, compile",
        "Two pipelines, or two datasets, end up with one name (also when differing by case only, also across connections)",
        "Rename one; both are named",
    ),
    Code.PZ0111: CodeInfo("load", "Sidecar names a pipeline no SQL file defines", "Fix the name or remove the sidecar"),
    Code.PZ0113: CodeInfo(
        "load",
        "Check is invalid: unknown type, bad or unknown option, or an identical duplicate",
        "Fix the option / drop the duplicate",
    ),
    Code.PZ0120: CodeInfo(
        "load", "`engine:` block invalid (shape, range, unknown key, quoted number)", "Did-you-mean for keys"
    ),
    Code.PZ0121: CodeInfo(
        "load, render", "`retry:` invalid (shape, bounds, duration, unknown key)", "Did-you-mean for keys"
    ),
    Code.PZ0122: CodeInfo(
        "load, render",
        "`max_concurrency:` not an integer of at least 1, or placed on a call",
        "Belongs on the connection",
    ),
    Code.PZ0123: CodeInfo(
        "load", "`retention:` invalid, or keeps fewer than one run", "Use off or keep_last of 1 or more"
    ),
    Code.PZ0124: CodeInfo(
        "load",
        "`state:` block invalid, unknown backend, or backend keys under the local backend",
        "Remove or move the key",
    ),
    Code.PZ0125: CodeInfo(
        "load",
        "State connection missing or of the wrong connector, or a remote backend without any credentials",
        "Name a valid connection or set the variable",
    ),
    Code.PZ0126: CodeInfo("load", "`on_source_drift:` not ignore, warn or fail", "Use one of the three"),
    Code.PZ0127: CodeInfo(
        "schema accept",
        "Argument does not lead to a dataset with a recorded observed schema (ignore policy, contract, or reused staging)",
        "Run again so that a schema is observed",
    ),
    Code.PZ0130: CodeInfo("init", "Target directory not empty", "Choose another directory"),
    Code.PZ0131: CodeInfo("init", "Unknown template", "List the templates"),
    Code.PZ0132: CodeInfo("init", "Neither a name nor the list flag, or both", "Give exactly one"),
    Code.PZ0133: CodeInfo(
        "load, warn",
        "`${VAR}` in an entity block, which is never substituted",
        "Names connection and option; ~move it to the connection",
    ),
    Code.PZ0134: CodeInfo("load", "Materialization outside table/view/ephemeral", "Did-you-mean"),
    Code.PZ0135: CodeInfo("load, warn", "A `.yaml` file where only `.yml` is read", "Names the file; ~rename it"),
    Code.PZ0136: CodeInfo(
        "load",
        "Pipeline or connection name is not a plain identifier, or a connection name holds a double underscore",
        "A concrete new name",
    ),
    Code.PZ0137: CodeInfo(
        "compile",
        "Option value of a type or value with no lossless canonical form (infinity, unknown type)",
        "Names option and file; ~use text, number, boolean, list or mapping",
    ),
    Code.PZ0201: CodeInfo(
        "render, compile",
        "`ref`/`source`/`sink` names something unknown, or the call has wrong arguments",
        "Near miss by one edit or case",
    ),
    Code.PZ0202: CodeInfo("compile", "Dependency cycle", "break the cycle; the path and one file are named"),
    Code.PZ0204: CodeInfo(
        "compile", "Ephemeral pipeline refers to an ephemeral one", "Make one of them a table or view"
    ),
    Code.PZ0205: CodeInfo(
        "compile", "Checks on an ephemeral pipeline", "Change the materialization or drop the checks"
    ),
    Code.PZ0206: CodeInfo("compile", "Two pipelines claim one sink entity", "Keep one writer"),
    Code.PZ0208: CodeInfo("render", "Sink call malformed (missing, extra or repeated arguments)", "Correct the call"),
    Code.PZ0209: CodeInfo("compile", "Merge without keys", "Declare keys"),
    Code.PZ0210: CodeInfo("selection", "Selector atom matches no node", "Check the name"),
    Code.PZ0211: CodeInfo("compile", "Keys without merge", "Drop keys or use merge"),
    Code.PZ0212: CodeInfo(
        "compile",
        "Cursor missing from, or of a wrong type in, the column contract",
        "Lists int, bigint, decimal, date, timestamp",
    ),
    Code.PZ0213: CodeInfo(
        "compile",
        "Window settings break a rule (no initial, wrong form, until not after initial, query mode, …)",
        "Fix the named key",
    ),
    Code.PZ0214: CodeInfo(
        "compile, plan",
        "Incremental or feed read into append without consent",
        "Use merge with keys, or record consent with duplicates: accept (the original's text also offers replace, which PZ0335 then refuses for these reads: do not repeat that)",
    ),
    Code.PZ0215: CodeInfo(
        "selection", "Bare run of a project with several unconnected flows", "Name a flow, select, or ask for all"
    ),
    Code.PZ0216: CodeInfo("selection", "Flow names, selection and all combined", "Use one mechanism"),
    Code.PZ0217: CodeInfo("compile", "Date-templated path without a date/timestamp cursor", "Add such a cursor"),
    Code.PZ0218: CodeInfo(
        "compile", "Date tokens unknown or not a contiguous coarse-to-fine run", "the known tokens in order"
    ),
    Code.PZ0219: CodeInfo(
        "compile",
        "Partitioned output: `partition_by` is no column list, or disagrees with the path tokens",
        "Align the two",
    ),
    Code.PZ0221: CodeInfo("compile", "Date-templated path without a bounded window", "Add initial and max_window"),
    Code.PZ0222: CodeInfo("compile", "`files_per_partition` is not a positive integer", "Use 1 or more"),
    Code.PZ0223: CodeInfo(
        "compile, warn", "Pipeline result is neither loaded nor referenced", "Load it, reference it, or remove it"
    ),
    Code.PZ0224: CodeInfo(
        "compile",
        "Watermark comparison not recognised, or its column does not come from the claimed dataset",
        "Use the one accepted shape: cursor column greater (or equal) than an expression holding the watermark",
    ),
    Code.PZ0225: CodeInfo(
        "compile", "Dataset incremental both in YAML and in SQL", "Either one; a windowed read is for YAML"
    ),
    Code.PZ0227: CodeInfo(
        "compile", "Watermark cursor absent from the contract or of an unsupported type", "Add it to the contract"
    ),
    Code.PZ0229: CodeInfo("compile", "Descending cursor order with a page limit", "Drop one of the two"),
    Code.PZ0230: CodeInfo("compile", "Pipeline named like a source's staging relation", "Rename the pipeline"),
    Code.PZ0231: CodeInfo(
        "compile", "Watermark comparisons of one dataset name different cursor columns", "Use one column"
    ),
    Code.PZ0232: CodeInfo(
        "compile, warn",
        "SQL embeds the run id or run start, so the node id changes each run",
        "Advisory: retry will always rerun this pipeline",
    ),
    Code.PZ0301: CodeInfo(
        "validate",
        "Connection, dataset or output option fails the connector's schema",
        "Accepted options and near miss; for type mix-ups: quote the reference, or write true/false unquoted",
    ),
    Code.PZ0305: CodeInfo("registry, run", "Connector not installed", "Restore or fix the connector name"),
    Code.PZ0311: CodeInfo(
        "run; validate as warn",
        "DuckDB set-up statement failed (extension, secret, setting, attach); also the warning for two tokens where a session allows one",
        "Shows only a redacted statement",
    ),
    Code.PZ0312: CodeInfo(
        "plan",
        "Option needs the universal path but the connector is native-only (or the reverse route is forced)",
        "Remove the forcing setting",
    ),
    Code.PZ0313: CodeInfo(
        "plan",
        "Window or ceiling on a connector without bounded-window support",
        "Use another connector or drop the window",
    ),
    Code.PZ0314: CodeInfo("plan", "Date tokens or `partition_by` without the needed capability", "As above"),
    Code.PZ0315: CodeInfo("compile, plan", "Two resume mechanisms on one dataset", "Keep one"),
    Code.PZ0316: CodeInfo(
        "plan, run",
        "Token-resumed or cdc read in more than one partition",
        "Explains that one token or log position cannot span partitions",
    ),
    Code.PZ0317: CodeInfo("plan", "Rate limit on a connector that does not pace", "Remove it"),
    Code.PZ0318: CodeInfo(
        "load, render",
        "`rate_limit:` malformed, out of bounds, or not on the connection",
        "Declare it on the connection",
    ),
    Code.PZ0319: CodeInfo(
        "plan, run",
        "Stable partition ids promised but missing, empty or repeated; or checkpointable reads without stable ids",
        "Connector defect",
    ),
    Code.PZ0324: CodeInfo("plan", "Write strategy not supported by the sink", "Use another strategy"),
    Code.PZ0330: CodeInfo("validate with connect", "Connection check failed", "Check host and credentials"),
    Code.PZ0331: CodeInfo(
        "validate, run",
        "Live schema differs from the contract or from the accepted baseline",
        "Accept the schema with the schema-accept verb",
    ),
    Code.PZ0334: CodeInfo(
        "load, render",
        "`sync:` block, or strategy/duplicates/on_delete/schema_policy, invalid",
        "Near miss where there is one",
    ),
    Code.PZ0335: CodeInfo(
        "compile, plan",
        "Read shape and write strategy that lose data (incremental or feed into replace, cdc into replace/append)",
        "Use merge, or drop sync for a full read",
    ),
    Code.PZ0336: CodeInfo("compile", "cdc-fed merge without on_delete", "Choose delete, soft or ignore"),
    Code.PZ0337: CodeInfo(
        "compile",
        "on_delete on an output not fed by cdc, or deletes that cannot be routed",
        "Remove it or read one source",
    ),
    Code.PZ0338: CodeInfo(
        "plan, run",
        "Connector has no change capture, or its change rows break the contract",
        "Other connector / connector defect",
    ),
    Code.PZ0339: CodeInfo("plan", "Sink cannot apply deletes", "Use ignore or another sink"),
    Code.PZ0340: CodeInfo(
        "run",
        "Merge keys missing or NULL in the deletes relation",
        "Keys must come through unchanged; rename only in the upsert view",
    ),
    Code.PZ0341: CodeInfo("load, render", "Option declared in YAML and at the call site", "Keep one place"),
    Code.PZ0344: CodeInfo(
        "load, render", "Entity name empty, with an empty segment, or with whitespace", "Correct the name"
    ),
    Code.PZ0345: CodeInfo("validate", "Connector's schema claims a key the engine owns", "Connector defect"),
    Code.PZ0349: CodeInfo("compile", "Dataset read by several pipelines", "Shows the staging pipeline to add"),
    Code.PZ0351: CodeInfo(
        "compile", "Upper watermark bound without a lower one", "Put a plain filter in WHERE without the watermark call"
    ),
    Code.PZ0353: CodeInfo(
        "plan",
        "Connector cannot build the native fragment: contract order contradicts the header, file missing, unaddressable name",
        "Fix the contract or entity; only for nodes that will run",
    ),
    Code.PZ0361: CodeInfo(
        "validate, plan",
        "Format not supported in this direction or tier, or many files for a single-workbook format",
        "Supported set is listed; pick one or another connector",
    ),
    Code.PZ0362: CodeInfo(
        "validate, plan", "Format option not valid for the format, or bad value", "Remove or fix the option"
    ),
    Code.PZ0363: CodeInfo(
        "plan", "Token-resumed dataset on a native-only connector", "Connector with an Arrow path, or full/cursor read"
    ),
    Code.PZ0364: CodeInfo(
        "validate, warn", "Connector's own non-blocking warning (e.g. unpinned host key)", "The connector's text"
    ),
    Code.PZ0365: CodeInfo(
        "validate, plan", "Relative path leaves a declared root", "Absolute path, or move the root up"
    ),
    Code.PZ0401: CodeInfo(
        "pre-run",
        "Rendered SQL fails the dry compile against empty contract tables",
        "Carries the engine's message; ~fix the column",
    ),
    Code.PZ0500: CodeInfo("any", "Unexpected exception, exit 3", "Report it; debug variable adds the stack"),
    Code.PZ0501: CodeInfo(
        "run", "Node failed for a reason without its own code", "For resource errors, guidance naming pz keys"
    ),
    Code.PZ0502: CodeInfo("retry", "No readable prior run", "Run first"),
    Code.PZ0503: CodeInfo("retry", "Prior run never finished", "Do a normal run; tells how many nodes were recorded"),
    Code.PZ0504: CodeInfo("retry", "Prior run ended fatally", "Do a normal run"),
    Code.PZ0505: CodeInfo(
        "run",
        "Cursor landed as an unsupported type, or differs from declared or stored type",
        "Align the contract, or full refresh",
    ),
    Code.PZ0506: CodeInfo(
        "run", "Circuit breaker open, connector not called", "States connection and cool-down in seconds"
    ),
    Code.PZ0507: CodeInfo("cdc drop", "Not exactly one connection.entity argument", "Give one target"),
    Code.PZ0508: CodeInfo("cdc drop", "Target is not a declared cdc dataset", "Check the name"),
    Code.PZ0510: CodeInfo(
        "run, test", "Check found violating rows, or its type is unknown", "For an unknown type: the six types"
    ),
    Code.PZ0511: CodeInfo("clean", "Both selectors given", "Use one"),
    Code.PZ0512: CodeInfo("clean", "Selector value unusable", "Fix the argument"),
    Code.PZ0513: CodeInfo(
        "state", "No stored watermark under the key", "List with state show; cdc drop if it is a token"
    ),
    Code.PZ0514: CodeInfo("state rollback", "Run recorded no usable watermark for the key", "Choose another run"),
    Code.PZ0515: CodeInfo(
        "state",
        "Value does not parse, moves forward on rollback, equals the current one, or type unknown",
        "Names the verb that fits: set or clear",
    ),
    Code.PZ0516: CodeInfo(
        "state", "Required flag or key missing, or no confirmation on a non-terminal", "Add the flag"
    ),
    Code.PZ0517: CodeInfo("state", "A run is in flight", "Names the run; ~wait"),
    Code.PZ0518: CodeInfo("state", "Store unreachable or authentication failed", "Names server and database"),
    Code.PZ0519: CodeInfo("state", "Store schema newer than this build, or migration failed", "Upgrade / check rights"),
    Code.PZ0520: CodeInfo("state", "Optimistic check lost: another run advanced the dataset", "Next run catches up"),
    Code.PZ0521: CodeInfo("run", "NULL in a merge key", "Filter or fill the key"),
    Code.PZ0522: CodeInfo(
        "run, warn",
        "Duplicate merge keys in the input",
        "Deduplicate deterministically in the pipeline if order matters",
    ),
    Code.PZ0523: CodeInfo(
        "run, warn", "Whole numbers inferred as double beyond 2^53", "Declare an integer column contract"
    ),
    Code.PZ0524: CodeInfo("run, warn", "Day/month order never disambiguated", "ISO dates, or read as text and parse"),
    Code.PZ0525: CodeInfo(
        "run", "Node exceeded the node timeout", "Raise the limit, or see what it waited for; retry reruns it"
    ),
    Code.PZ0526: CodeInfo(
        "run", "Timed-out node ignored cancellation; rest of the run cancelled", "Look at the stuck connector"
    ),
    Code.PZ0527: CodeInfo(
        "after run, notice",
        "Sinks committed but some state was not stored",
        "Names every dataset and reason; next run re-reads them",
    ),
    Code.PZ0528: CodeInfo("state", "Migration lock not obtained in time", "Try again"),
    Code.PZ0529: CodeInfo(
        "state",
        "Store reached but the operation failed",
        "Error number or status, attempts made, whether usually temporary",
    ),
    Code.PZ0530: CodeInfo("state, warn", "Bearer token over plain http (loopback exempt)", "Use https"),
    Code.PZ0531: CodeInfo("any", "Permission denied under the project", "Names the path"),
    Code.PZ0532: CodeInfo("any", "Disk full", "Names the path; ~free space"),
    Code.PZ0533: CodeInfo("any", "File held by another process", "Names the path"),
    Code.PZ0534: CodeInfo("runs", "Limit below 1", "Positive number"),
    Code.PZ0535: CodeInfo("completion", "Unknown shell", "bash, zsh, fish or pwsh"),
    Code.PZ0536: CodeInfo("state", "Key or value longer than its remote column", "Rename, or keep run artifacts local"),
    Code.PZ0701: CodeInfo(
        "run",
        "Another run holds the lock of a dataset or output of this run",
        "Wait for the run that is named, or select other flows",
    ),
    Code.PZ0702: CodeInfo("run", "The run directory could not be created or locked", "Look at the named path"),
    Code.PZ0703: CodeInfo(
        "retry",
        "The run to continue belongs to a live or stopped process",
        "Wait for it or end it; its lock frees the run",
    ),
    Code.PZ0704: CodeInfo(
        "run",
        "Outcome of a commit is unknown and nothing could settle it",
        "Look at the destination; `pz retry` delivers again as the consent of the output allows",
    ),
    Code.PZ0705: CodeInfo(
        "run",
        "State does not belong to the place it was earned at",
        "Run with --full-refresh, or declare `start: from_state` on a new output",
    ),
    Code.PZ0706: CodeInfo(
        "state",
        "A state file is damaged or of a newer version",
        "Restore the file from a backup, or clear the entry with `pz state`",
    ),
    Code.PZ0707: CodeInfo(
        "retry", "A run record or result file is damaged and could not be rebuilt", "Do a normal run"
    ),
    Code.PZ0708: CodeInfo(
        "run", "Staging database cannot be opened", "Look at the named path; a normal run starts anew"
    ),
    Code.PZ0709: CodeInfo(
        "run",
        "What was delivered earlier in this chain is not what was read this time; state is not advanced",
        "Do a normal run",
    ),
    Code.PZ0710: CodeInfo(
        "run, warn",
        "The results file of a run could not be written; the run goes on",
        "Look at the named path; until a later write succeeds, the file shows an older state of the run",
    ),
    Code.PZ0720: CodeInfo(
        "run", "No file matches the path of a dataset", "Correct the path, or declare `missing: empty`"
    ),
    Code.PZ0721: CodeInfo("run", "A file changed while it was read", "Run again when the file is complete"),
    Code.PZ0722: CodeInfo("run", "A file cannot be read in its declared format", "Correct the file or the columns"),
    Code.PZ0723: CodeInfo("run", "A value cannot be held by the destination format", "Cast the column in the pipeline"),
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
