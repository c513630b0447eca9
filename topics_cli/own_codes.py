"""The codes of failures that are the command line's own: what each means, and the exit codes that go with it.

The daemon's are in `engine.errors`. A test holds this table against the sources. Nothing that must start fast needs it.
"""

from __future__ import annotations

from typing import Final

from topics_cli import exits

OWN: Final[dict[str, tuple[tuple[int, ...], str]]] = {
    "usage": ((exits.USAGE,), "a word of the command line is wrong, missing, or contradicts another"),
    "no_daemon": ((exits.NO_DAEMON,), "nobody answers where the daemon should be; topics status says why there"),
    "bad_answer": ((exits.NO_DAEMON,), "what answers there is not topicsd"),
    "not_allowed": ((exits.NOT_ALLOWED,), "the mode or owner of a socket or directory keeps this user out"),
    "bad_key": ((exits.CONFIGURATION,), "TOPICS_KEY holds no key"),
    "bad_key_file": ((exits.CONFIGURATION,), "the key file cannot be read, or holds no key"),
    "bad_context": ((exits.CONFIGURATION,), "a context, or an address, cannot be understood"),
    "bad_cursor": ((exits.CONFIGURATION,), "the file of --cursor cannot be used, or holds no cursor"),
    "bad_scenario": ((exits.CONFIGURATION,), "bench: a scenario that is not there, or cannot be run"),
    "no_home": ((exits.CONFIGURATION,), "there is no place for contexts: neither HOME nor XDG_CONFIG_HOME"),
    "cursor_in_use": ((exits.TRY_AGAIN,), "another command works with the same file of --cursor"),
    "gap": ((exits.GAP,), "records were lost, and --fail-on-gap was given"),
    "topic_exists": ((exits.FAILED,), "the topic is there, and --must-be-new was given"),
    "router_exists": ((exits.FAILED,), "the router is there, and --must-be-new was given"),
    "no_input": ((exits.FAILED,), "a file of input, or standard input, cannot be read"),
    "invalid_record": (
        (exits.FAILED,),
        "write: a line is not JSON, no record, or lacks what --key-from or --tag-from take",
    ),
    "bad_input": ((exits.FAILED,), "a line of input is neither a seq nor a claimed job"),
    "bad_framing": ((exits.FAILED,), "the input does not keep to its framing, or ends inside a record"),
    "output_failed": ((exits.FAILED,), "the output cannot be written"),
    "cannot_write": ((exits.FAILED,), "a file cannot be written"),
    "bad_out": ((exits.FAILED,), "the directory for what is made cannot be made"),
    "not_empty": ((exits.FAILED,), "the directory for what is made has something in it"),
    "command_not_found": ((exits.COMMAND_NOT_FOUND,), "work: there is no such command"),
    "cannot_execute": ((exits.CANNOT_EXECUTE,), "work: the command may not be executed"),
    "cannot_start": ((exits.FAILED,), "work: the system cannot start the command"),
    "exec_failed": (
        (exits.FAILED, exits.CANNOT_EXECUTE, exits.COMMAND_NOT_FOUND),
        "the command of --exec failed, or what serve runs cannot be started",
    ),
    "halted": ((exits.FAILED,), "work: as many commands in a row have failed as --halt says"),
    "daemon_failed": ((exits.FAILED,), "serve --embedded: the daemon did not start"),
    "bench_failed": ((exits.FAILED,), "bench: the load could not be made, or what came back is wrong"),
    "cannot_listen": ((exits.FAILED,), "bench: its metrics cannot be served there"),
    "no_completions": ((exits.FAILED,), "the files of completions are not where the package puts them"),
    "no_store": ((exits.FAILED,), "the directory is no store"),
    "store_locked": ((exits.FAILED,), "a process has the store, which changes while it is read"),
    "store_damaged": ((exits.DAMAGE, exits.FAILED), "a store, backup or pin is damaged where it had to be whole"),
    "io_error": ((exits.FAILED,), "the system refused to read or write a store"),
    "unreadable": ((exits.FAILED,), "a file cannot be read"),
    "missing_package": ((exits.FAILED,), "a package is not installed that this command needs"),
    "missing_java": ((exits.FAILED,), "Spark needs Java, and there is none"),
    "spark_failed": ((exits.FAILED,), "Spark could not do its part: an executor was lost, or a query met bad values"),
    "lake_damaged": ((exits.DAMAGE,), "an export is damaged"),
    "lake_newer": ((exits.FAILED,), "an export was made by a newer version"),
    "locked": ((exits.FAILED,), "another process exports to the same directory"),
    "conflict": ((exits.FAILED,), "what is in an export's directory contradicts what is to be written"),
    "recreated": ((exits.FAILED,), "what is there of the topic is older than what was exported"),
    "unsupported": ((exits.FAILED,), "this is not possible here, or not yet"),
}
