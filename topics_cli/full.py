"""The full program: Typer's commands, made from the option table.

Each command becomes a function whose signature is the table's row, so that Typer reads, checks and documents it; all
of them end in `app.run` with the same values that the small parser gives. What Typer would print about mistakes is
said the way every other failure is said.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer

from topics_cli import app, exits
from topics_cli.exits import Failure, usage
from topics_cli.nearest import nearest
from topics_cli.options import FLAG, TEXT, Argument, Command, Option
from topics_cli.session import Session
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON
from topics_cli.talk import speaks_utf8

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""ClickException: Typer carries its own copy of click, and names this class nowhere."""

EVERYWHERE = "Everywhere"
ELSEWHERE = {
    word: ours
    for ours, words in {
        "write": "publish produce append add push send put emit log xadd lpush rpush enqueue post pub",
        "tail": "read subscribe consume follow cat watch show xread xrange stream listen sub",
        "get": "fetch lookup peek",
        "ls": "list topics dir",
        "info": "describe stat stats inspect",
        "create": "mkdir new make touch",
        "set": "config configure alter update",
        "drop": "rm rmdir destroy remove",
        "delete": "del trim truncate purge erase xdel xtrim",
        "claim": "reserve pop lease take dequeue xreadgroup lpop rpop",
        "ack": "done finish complete xack",
        "nack": "release retry fail",
        "extend": "renew touch-job keepalive",
        "work": "worker run process exec",
        "dlq": "dead buried bury kick",
        "cursor": "offset offsets group groups position",
        "router": "route routers mirror forward",
        "fsck": "check verify scrub",
        "recover": "repair rescue salvage",
        "backup": "dump snapshot save",
        "restore": "load",
        "serve": "start daemon server run-daemon topicsd",
        "status": "ping health up top monitor",
        "bench": "benchmark perf load-test",
        "completions": "completion",
    }.items()
    for word in words.split()
}
"""What other systems (and shells) call these things: a newcomer's first word should lead somewhere."""


def run_full(words: list[str]) -> int:
    """Read any command line and run what it calls; returns the exit code."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in COMMANDS and COMMANDS[words[0]].passes_through:
        return app.run(COMMANDS[words[0]], {"words": words[1:]})
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as good as the one we lack
    try:
        code = build(_called(words), is_dressed=_is_dressed(words))(
            args=words, prog_name="topics", standalone_mode=False
        )
    except _CLICK_ERROR as error:
        return _report_usage(error, words)
    except typer.Abort:
        return exits.INTERRUPTED
    except Failure as failure:
        return _report(failure, words)
    except (BrokenPipeError, SystemExit):
        # Typer leaves by SystemExit only when the reader of a help page has gone.
        app.silence_stdout()
        return exits.CLOSED_PIPE
    except OSError as error:
        app.silence_stdout()
        return _report(Failure(f"the output cannot be written: {error.strerror}", "output_failed"), words)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        app.silence_stdout()
        return exits.CLOSED_PIPE
    return code if isinstance(code, int) else exits.DONE


def _is_dressed(words: list[str]) -> bool:
    """Whether help may have frames and colours: on a terminal that can show them, unless they are not wanted."""
    is_plain = "--color=never" in words or ("--color", "never") in pairwise(words)
    return sys.stdout.isatty() and speaks_utf8() and os.environ.get("TERM", "dumb") != "dumb" and not is_plain


def _called(words: list[str]) -> list[Command]:
    """The commands that Typer has to know for these words: the one that is called, or all when that is not plain."""
    named = COMMANDS.get(words[0]) if words else None
    return [named] if named is not None else list(COMMANDS.values())


def build(commands: list[Command], *, is_dressed: bool = False) -> typer.Typer:
    """The Typer program of these commands, with help in frames and colours or without."""
    program = typer.Typer(
        name="topics",
        cls=_AllCommands,
        help="An append-only event log on one machine: write, read and follow topics.",
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        rich_markup_mode="rich" if is_dressed else None,
        pretty_exceptions_enable=False,
    )
    program.callback(invoke_without_command=True)(_leading())
    for command in commands:
        # A paragraph that begins with \b is not folded: an example may be copied.
        fixed = "" if is_dressed else "\b\n"
        examples = "\n\n".join(["Examples:", *(fixed + example for example in command.examples)])
        epilog = examples if command.examples else None
        named = program.command(command.name, cls=_OneCommand, help=command.summary, epilog=epilog)
        named(_function(command))
    return program


class _PlainHelp:
    """Shows the flag that shows help as one that takes no value."""

    def get_help_option(self, ctx: Any) -> Any:
        option: Any = super().get_help_option(ctx)  # type: ignore[misc]  # of the class that this is mixed into
        option.metavar = ""
        return option


class _PlainArgument(typer.core.TyperArgument):
    """Shows an argument by its name, with its choices where it has some, and not by a type of Python."""

    choices: tuple[str, ...]

    def display_type_rich(self, ctx: Any) -> str:
        return "|".join(self.choices)

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        name = self.display_name_raw + ("" if self.nargs == 1 else "...")
        return [name if self.required else f"[{name}]"]


class _OneCommand(_PlainHelp, typer.core.TyperCommand):
    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole summary, wherever it is listed."""
        return self.help or ""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        choices = {argument.metavar: argument.choices for argument in COMMANDS[self.name or ""].arguments}
        for param in self.params:
            if isinstance(param, typer.core.TyperArgument):
                param.__class__ = _PlainArgument  # Typer makes them itself, of a class that nobody may choose.
                param.choices = choices[param.display_name_raw]  # type: ignore[attr-defined]  # it has them now


class _AllCommands(_PlainHelp, typer.core.TyperGroup):
    pass


def _leading() -> Callable[..., None]:
    """The options before the command."""

    def leading(ctx: typer.Context, **values: Any) -> None:
        if values.pop("version"):
            ctx.exit(app.run(COMMANDS["version"], {**values}))
        ctx.obj = values
        if ctx.invoked_subcommand is None:
            raise usage("which command?", "topics --help lists them")

    version = Option("--version", FLAG, "Show the versions, and end.")
    parameters = [_parameter(option) for option in (version, *COMMON)]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    return _signed(leading, [context, *parameters])


def _function(command: Command) -> Callable[..., int]:
    def called(ctx: typer.Context, **values: Any) -> int:
        for option in COMMON:
            if values[option.name] == option.default and ctx.obj:
                values[option.name] = ctx.obj[option.name]
        items: tuple[Option | Argument, ...] = (*command.options, *command.arguments)
        for item in items:
            name = _python_name(item.name)
            values[item.name] = list(values.pop(name) or []) if item.many else values.pop(name)
        return app.run(command, values)

    called.__name__ = command.name
    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_argument(argument) for argument in command.arguments]
    parameters += [_parameter(option) for option in command.options]
    parameters += [_parameter(option, EVERYWHERE) for option in COMMON]
    return _signed(called, parameters)


def _signed(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """Give a function the signature that Typer will read."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions take attributes
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _python_name(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)


def _reader(item: Option | Argument) -> Callable[[str], Any]:
    def read(word: Any) -> Any:
        if not isinstance(word, str):
            return word
        try:
            return item.read(word)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    read.__name__ = item.kind
    return read


def _parameter(option: Option, panel: str | None = None) -> inspect.Parameter:
    metavar = "|".join(option.choices) or option.metavar or None
    kind: Any
    if option.kind is FLAG:
        flag = typer.Option(*option.flags, help=option.help, metavar="", rich_help_panel=panel, show_default=False)
        kind = Annotated[bool, flag]
        default: Any = False
    else:
        settings: dict[str, Any] = {} if option.kind is TEXT else {"parser": _reader(option)}
        info = typer.Option(*option.flags, help=option.help, metavar=metavar, rich_help_panel=panel, **settings)
        kind = Annotated[(list[str] if option.many else str | None), info]
        default = None
    return inspect.Parameter(
        _python_name(option.name), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )


def _argument(argument: Argument) -> inspect.Parameter:
    settings: dict[str, Any] = {} if argument.kind is TEXT else {"parser": _reader(argument)}
    info = typer.Argument(help=argument.help, metavar=argument.metavar, show_default=False, **settings)
    kind: Any = list[str] if argument.many else str if argument.required else str | None
    default = inspect.Parameter.empty if argument.required else None
    return inspect.Parameter(
        _python_name(argument.name), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _report_usage(error: Any, words: list[str]) -> int:
    """Say a mistake on the command line."""
    message = str(error.format_message()).strip()
    if not message:
        return exits.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "topics"
    hint = f"try: {path} --help"
    name = next((word for word in words if not word.startswith("-")), "")
    if message.startswith("No such command"):
        near = ELSEWHERE.get(name.lower(), "").split() or nearest(name, list(COMMANDS))
        message = f"there is no command {name!r}"
        hint = f"did you mean {' or '.join(near)}?" if near else hint
    return _report(usage(message[:1].lower() + message[1:].rstrip("."), hint), words)


def _report(failure: Failure, words: list[str]) -> int:
    """Say a failure in the form that the words ask for, though they could not be read."""
    return Session({"output": "json"} if _wants_json(words) else {}).report(failure)


def _wants_json(words: list[str]) -> bool:
    return "-ojson" in words or "--output=json" in words or ("-o", "json") in pairwise(words)
