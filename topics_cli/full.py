"""The full program: Typer's commands, made from the option table.

Each command becomes a function whose signature is the table's row, so that Typer reads and checks it; all of them end
in `app.run` with the same values that the small parser gives. What Typer would print about mistakes is said the way
every other failure is said, and help is our own (`help`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer

from topics_cli import app, exits
from topics_cli.exits import Failure, usage
from topics_cli.help import HELP, PAGE, VERSION
from topics_cli.nearest import nearest
from topics_cli.options import FLAG, TEXT, Argument, Command, Option
from topics_cli.session import Session
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON

_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""ClickException: Typer carries its own copy of click, and names this class nowhere."""

ELSEWHERE = {
    word: ours
    for ours, words in {
        "write": "publish produce append add push send put emit log xadd lpush rpush enqueue post pub",
        "tail": "read subscribe consume follow cat watch show xread xrange stream listen sub logs grep search replay",
        "get": "fetch lookup peek",
        "ls": "list topics queues keys dir",
        "info": "describe stat stats inspect count len size xlen llen",
        "create": "mkdir new make",
        "set": "config configure alter update",
        "drop": "rm rmdir destroy remove",
        "delete": "del trim truncate purge erase xdel xtrim",
        "claim": "reserve pop lease take dequeue xreadgroup lpop rpop",
        "ack": "done finish complete xack",
        "nack": "release retry fail",
        "extend": "renew touch keepalive",
        "work": "worker run process exec",
        "dlq": "dead buried bury kick requeue",
        "cursor": "offset offsets group groups position lag seek",
        "router": "route routers mirror forward",
        "fsck": "check verify scrub",
        "recover": "repair rescue salvage",
        "backup": "dump snapshot save",
        "checkpoint": "flush bgsave bgrewriteaof",
        "restore": "load",
        "serve": "start daemon server run-daemon topicsd",
        "status": "ping health up top monitor metrics",
        "doctor": "debug diagnose",
        "explain": "why history",
        "detach": "move mv migrate transfer",
        "bench": "benchmark perf load-test",
        "completions": "completion",
    }.items()
    for word in words.split()
}
"""What other systems (and shells) call these things: a newcomer's first word should lead somewhere."""


FORMS = next(option.choices for option in COMMON if option.name == "output")


def run_full(words: list[str]) -> int:
    """Read any command line and run what it calls; returns the exit code."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and words[0] in COMMANDS and COMMANDS[words[0]].passes_through:
        return app.run(COMMANDS[words[0]], {"words": words[1:]})
    try:
        code = build(_called(words))(args=words, prog_name="topics", standalone_mode=False, color=_color(words))
    except _CLICK_ERROR as error:
        return _report_usage(error, words)
    except typer.Abort:
        return exits.INTERRUPTED
    except Failure as failure:
        return _report(failure, words)
    return code if isinstance(code, int) else exits.DONE


def _color(words: list[str]) -> bool | None:
    """What the words say of colours, for a page of help that is shown before they are all read."""
    for word, value in pairwise([*words, ""]):
        name, _, given = word.partition("=")
        if name == "--color":
            return {"always": True, "never": False}.get(given or value)
    return None


def _called(words: list[str]) -> list[Command]:
    """The commands that Typer has to know for these words: the one that is called, or all when that is not plain."""
    named = COMMANDS.get(words[0]) if words else None
    return [named] if named is not None else list(COMMANDS.values())


def build(commands: list[Command]) -> typer.Typer:
    """The Typer program of these commands."""
    program = typer.Typer(
        name="topics",
        cls=_AllCommands,
        add_completion=False,
        context_settings={"help_option_names": list(HELP.flags)},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    program.callback(invoke_without_command=True)(_leading())
    for command in commands:
        program.command(command.name, cls=_OneCommand)(_function(command))
    return program


class _OurHelp:
    """Shows our own page where Typer would make one."""

    name: str | None

    def get_help(self, ctx: Any) -> str:
        color = {True: "always", False: "never"}.get(ctx.color)
        name = self.name if self.name in COMMANDS else None
        ctx.exit(app.run(PAGE, {"name": name, "color": color}))
        raise AssertionError("exit raises")


class _OneCommand(_OurHelp, typer.core.TyperCommand):
    pass


class _AllCommands(_OurHelp, typer.core.TyperGroup):
    pass


def _leading() -> Callable[..., None]:
    """The options before the command."""

    def leading(ctx: typer.Context, **values: Any) -> None:
        if values.pop("version"):
            ctx.exit(app.run(COMMANDS["version"], {**values}))
        ctx.obj = values
        if ctx.invoked_subcommand is None:
            raise usage("which command?", "topics --help lists them")

    parameters = [_parameter(option) for option in (VERSION, *COMMON)]
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
    parameters += [_parameter(option) for option in COMMON]
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


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any
    if option.kind is FLAG:
        kind, default = Annotated[bool, typer.Option(*option.flags)], False
    else:
        settings: dict[str, Any] = {} if option.kind is TEXT else {"parser": _reader(option)}
        info = typer.Option(*option.flags, **settings)
        kind, default = Annotated[(list[str] if option.many else str | None), info], None
    return inspect.Parameter(
        _python_name(option.name), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
    )


def _argument(argument: Argument) -> inspect.Parameter:
    settings: dict[str, Any] = {} if argument.kind is TEXT else {"parser": _reader(argument)}
    info = typer.Argument(metavar=argument.metavar, **settings)
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
    name = next((word for word in words if not word.startswith("-")), "")
    called = COMMANDS.get(name)
    hint = f"try: topics {name} --help" if called else "try: topics --help"
    near: list[str] = []
    if message.startswith("No such command"):
        message = f"there is no command {name!r}"
        near = ELSEWHERE.get(name.lower(), "").split() or nearest(name, [*COMMANDS, "help"])
    elif message.startswith("No such option"):
        message = f"there is no option {error.option_name}"
        options = (*called.options, *COMMON) if called else COMMON
        flags = [flag for option in options for flag in option.flags]
        near = [flag for flag in flags if flag.startswith(error.option_name)] or _like(error.option_name, flags)
    hint = f"did you mean {' or '.join(near)}?" if near else hint
    return _report(usage(message[:1].lower() + message[1:].rstrip("."), hint), words)


def _like(option: str, flags: list[str]) -> list[str]:
    """The option that is meant by one that there is not; dashes make no likeness."""
    form = option.lstrip("-")
    if form in FORMS:
        return [f"-o {form}"]
    return [f"--{name}" for name in nearest(form, [flag[2:] for flag in flags if flag.startswith("--")])[:1]]


def _report(failure: Failure, words: list[str]) -> int:
    """Say a failure in the form that the words ask for, though they could not be read."""
    return Session({"output": "json"} if _wants_json(words) else {}).report(failure)


def _wants_json(words: list[str]) -> bool:
    return "-ojson" in words or "--output=json" in words or ("-o", "json") in pairwise(words)
