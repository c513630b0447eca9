"""Completions for bash, zsh and fish, from the option table; `make docs` writes them under `completions/`.

What a word may be is told from its metavar: names of topics, queues, cursors and routers are asked of the daemon
(silently, and with a bound, so that a daemon that is away costs nothing), those of contexts are in their file, files
and directories are the shell's own, choices are in the table. The three scripts know the same; a test runs each in its
shell.
"""

from __future__ import annotations

from typing import Final

from engine.errors import Code
from topics_cli import exits
from topics_cli.help import PAGE
from topics_cli.options import CHOICE, FLAG, Argument, Command, Option
from topics_cli.own_codes import OWN
from topics_cli.table import COMMANDS, CONFIG_FIELDS
from topics_cli.table_quick import COMMON

SORTS: Final = {
    "TOPIC": "topics",
    "QUEUE": "queues",
    "FILE": "files",
    "PATH": "files",
    "SRC": "directories",
    "DIR": "directories",
    "DATA": "directories",
    "NEW": "directories",
    "COMMAND": "commands",
}
"""What a metavar stands for; any other is nothing that a shell could know."""
NAMES: Final = {
    ("cursor", "NAME"): "cursors",
    ("tail", "NAME"): "cursors",
    ("router", "NAME"): "routers",
    ("context", "NAME"): "contexts",
}
"""What a metavar stands for in one command."""
ASKED: Final = {
    "topics": "ls -t '{topic} {type}'",
    "queues": "ls -t '{topic} {type}'",
    "cursors": "cursor ls -t '{name}'",
    "routers": "router ls -t '{router}'",
    "contexts": "context ls -t '{name}'",
}
"""How names are asked for; cursors are a topic's, which is the argument before them."""
WAIT_S: Final = 1
"""How long a daemon that does not answer is waited for."""
PLACES_MAX: Final = 9
"""Beyond this many arguments there is only more of the last."""
_MADE: Final = "# Made by `make docs` from the option table of topics; change that, not this file.\n"
_ALL: Final = {
    **COMMANDS,
    "help": Command(
        "help",
        PAGE.summary,
        PAGE.run,
        arguments=(Argument("COMMAND", "A command.", kind=CHOICE, required=False, choices=tuple(COMMANDS)),),
    ),
}
"""`help` is a way to ask, and no row of the table."""
_PLACE: Final = tuple(option for option in COMMON if option.name in ("socket", "url", "key_file"))
"""Options that say where the daemon is: names are asked there."""


def sort_of(command: Command | None, item: Option | Argument) -> str:
    """What a value is: one of `ASKED`, `files`, `directories`, `commands`, or "" for what a shell cannot know."""
    if command is not None and command.name == "write" and item.metavar == "DATA":
        return ""
    if item.name == "dead_letter":
        return "topics"
    return NAMES.get((command.name if command is not None else "", item.metavar), SORTS.get(item.metavar, ""))


def words_of(command: Command | None, item: Option | Argument) -> list[str]:
    """The only words that a value can be, or begin with; none when it is free."""
    if item.choices:
        return list(item.choices)
    if command is not None and command.name == "errors":
        return [*(code.value for code in Code), *OWN, *map(str, exits.MEANINGS)]
    if item.metavar == "FIELD=VALUE":
        return [f"{name}=" for name, *_ in CONFIG_FIELDS]
    return []


def _flags(command: Command | None) -> list[str]:
    own = command.options if command is not None else ()
    return [flag for option in (*own, *COMMON) for flag in option.flags] + ["--help"]


def _names(options: tuple[Option, ...]) -> str:
    return " | ".join(flag for option in options for flag in option.flags)


_VALUED: Final = tuple(option for option in COMMON if option.kind is not FLAG)


def bash() -> str:
    """The script that bash sources."""

    def found(command: Command | None, item: Option | Argument) -> str:
        words = words_of(command, item)
        return f"sort=words words='{' '.join(words)}'" if words else f"sort='{sort_of(command, item)}'"

    values, places, flags = [], [], []
    for command in _ALL.values():
        flags.append(f"    {command.name}) words='{' '.join(_flags(command))}' ;;\n")
        for option in command.options:
            if option.kind is not FLAG:
                pattern = " | ".join(f"{command.name}:{flag}" for flag in option.flags)
                values.append(f"    {pattern}) {found(command, option)} ;;\n")
        for place, argument in enumerate(command.arguments):
            pattern = f"{command.name}:" + (f"[{place}-{PLACES_MAX}]" if argument.many else str(place))
            places.append(f"    {pattern}) {found(command, argument)} ;;\n")
    values += [
        f"    {' | '.join('*:' + flag for flag in option.flags)}) {found(None, option)} ;;\n" for option in _VALUED
    ]
    return _BASH.format(
        made=_MADE,
        commands=" ".join(_ALL),
        common=" ".join(_flags(None)),
        flags="".join(flags),
        values="".join(values),
        places="".join(places),
        asked="".join(f"    {sort}) {_bash_asked(sort)} ;;\n" for sort in ASKED),
        sorts=" | ".join(ASKED),
        lead=_names(_VALUED),
        where=_names(_PLACE),
        wait=WAIT_S,
        most=PLACES_MAX,
    )


def _bash_asked(sort: str) -> str:
    if sort == "cursors":
        return f"""[[ -n $topic ]] || return; asked=({ASKED[sort]} "$topic" "$prefix")"""
    return f"""asked=({ASKED[sort]}{"" if sort == "contexts" else ' "$prefix"'})"""


_BASH = """{made}
__topics_names() {{ # what of, the argument before, a prefix, and the options that say where the daemon is
    local sort=$1 topic=$2 prefix=$3 name type IFS=$' \\t\\n'
    local -a asked=()
    shift 3
    case $sort in
{asked}    esac
    timeout {wait} topics -q --retry-for 0 "$@" "${{asked[@]}}" 2>/dev/null </dev/null |
        while read -r name type; do
            # bash runs what it finds in words to choose from, so only what can be a name is one.
            [[ $name == *[!A-Za-z0-9._:\\>-]* ]] && continue
            if [[ $sort != queues || $type == queue ]]; then printf '%s\\n' "$name"; fi
        done
}}

# COMMAND:OPTION to what its value is, as $sort and $words; fails when it takes none.
__topics_value() {{
    case $1 in
{values}    *) return 1 ;;
    esac
}}

# COMMAND:PLACE to what that argument is.
__topics_argument() {{
    case $1 in
{places}    *) sort='' ;;
    esac
}}

__topics_flags() {{
    sort=words
    case $1 in
{flags}    *) words='{common}' ;;
    esac
}}

_topics() {{
    local line=${{COMP_LINE:0:COMP_POINT}} command='' option='' sort='' words='' word last=''
    local -i place=0 ended=0
    local -a before=() where=()
    local cur=${{line##*[[:space:]]}}
    read -ra before <<<"${{line%"$cur"}}"
    for word in "${{before[@]:1}}"; do
        if [[ -n $option ]]; then
            case $option in {where}) where+=("$option" "$word") ;; esac
            option=''
        elif ((!ended)) && [[ $word == -- ]]; then
            ended=1
        elif ((!ended)) && [[ $word == -?* ]]; then
            if [[ $word != *=* ]] && __topics_value "$command:$word"; then option=$word; fi
        elif [[ -z $command ]]; then
            command=$word
        else
            place+=1
            last=$word
        fi
    done
    local start=$cur
    sort=''
    if [[ -n $option ]]; then
        __topics_value "$command:$option"
    elif ((!ended)) && [[ $cur == --*=* ]]; then
        __topics_value "$command:${{cur%%=*}}" && start=${{cur#*=}}
    elif ((!ended)) && [[ $cur == -* ]]; then
        __topics_flags "$command"
    elif [[ -z $command ]]; then
        sort=words words='{commands}'
    else
        __topics_argument "$command:$((place > {most} ? {most} : place))"
    fi
    local IFS=$'\\n'
    case $sort in
    words) COMPREPLY=($(compgen -W "${{words// /$IFS}}" -- "$start")) ;;
    {sorts})
        COMPREPLY=($(compgen -W "$(__topics_names "$sort" "$last" "$start" "${{where[@]}}")" -- "$start"))
        COMPREPLY=("${{COMPREPLY[@]//>/\\>}}") # names of routers may hold it
        ;;
    files) COMPREPLY=($(compgen -f -- "$start")) && compopt -o filenames 2>/dev/null ;;
    directories) COMPREPLY=($(compgen -d -- "$start")) && compopt -o filenames 2>/dev/null ;;
    commands) COMPREPLY=($(compgen -c -- "$start")) ;;
    *) COMPREPLY=() ;;
    esac
    if [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
    # bash breaks words at a colon, which names may hold: what stands before it is there already.
    if [[ $start == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${{COMPREPLY[@]#"${{start%"${{start##*:}}"}}"}}")
    fi
    return 0
}}

complete -F _topics topics
"""


def zsh() -> str:
    """The function that zsh loads from its `fpath`."""
    about = "".join(f"        {_zsh_quoted(f'{command.name}:{command.summary}')}\n" for command in _ALL.values())
    cases = []
    for command in _ALL.values():
        specs = [_zsh_option(command, option) for option in command.options]
        for place, argument in enumerate(command.arguments, 1):
            action = _zsh_action(command, argument)
            where = "*" if argument.many else str(place)
            optional = "" if argument.required or argument.many else ":"
            specs.append(_zsh_quoted(f"{where}:{optional}{_zsh_text(argument.metavar.lower())}:{action}"))
        lines = "".join(f" \\\n            {spec}" for spec in specs)
        cases.append(f"    {command.name})\n        _arguments -s -S $common{lines}\n        ;;\n")
    common = "".join(f"        {_zsh_option(None, option)}\n" for option in COMMON)
    return _ZSH.format(
        made=_MADE,
        about=about,
        common=common,
        cases="".join(cases),
        wait=WAIT_S,
        where=_names(_PLACE),
        asked="".join(f"    {sort}) {_zsh_asked(sort)} ;;\n" for sort in ASKED),
        functions="".join(f'__topics_{sort}() {{\n    __topics_names {sort} "$@"\n}}\n\n' for sort in ASKED),
    )


def _zsh_asked(sort: str) -> str:
    return (
        f"""[[ -n $topic ]] || return; asked=({ASKED[sort]} $topic)"""
        if sort == "cursors"
        else f"asked=({ASKED[sort]})"
    )


def _zsh_text(text: str) -> str:
    for mark in "\\[]:":
        text = text.replace(mark, "\\" + mark)
    return text


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_option(command: Command | None, option: Option) -> str:
    text = f"[{_zsh_text(option.help)}]"
    if option.kind is not FLAG:
        text += f":{_zsh_text((option.metavar or option.name).lower())}:{_zsh_action(command, option)}"
    specs = []
    for flag in option.flags:
        valued = ("=" if flag.startswith("--") else "+") if option.kind is not FLAG else ""
        others = "*" if option.many else f"({' '.join(option.flags)})" if len(option.flags) > 1 else ""
        specs.append(_zsh_quoted(f"{others}{flag}{valued}{text}"))
    return " ".join(specs)


def _zsh_action(command: Command | None, item: Option | Argument) -> str:
    words = words_of(command, item)
    if words and words[0].endswith("="):
        return f"compadd -S '' {' '.join(words)}"
    if words:
        return f"({' '.join(words)})"
    actions = {
        **{sort: f"__topics_{sort}" for sort in ASKED},
        "files": "_files",
        "directories": "_files -/",
        "commands": "_command_names -e",
    }
    return actions.get(sort_of(command, item), " ")


_ZSH = """#compdef topics
{made}
__topics_names() {{ # what of, asked of the daemon that the line names
    local sort=$1 each topic
    local -a names where asked
    local -i at
    shift
    for ((at = 1; at < $#__topics_words; at++)); do
        case $__topics_words[at] in
        {where}) where+=($__topics_words[at] $__topics_words[at+1]) ;;
        esac
    done
    topic=$line[1] # an argument of the command, as _arguments has them
    if [[ $words[1] == cursor ]]; then topic=$line[2]; fi
    case $sort in
{asked}    esac
    asked=(timeout {wait} topics -q --retry-for 0 $where $asked)
    for each in ${{(f)"$($asked 2>/dev/null </dev/null)"}}; do
        if [[ $sort != queues || $each == *' queue' ]]; then names+=(${{each%% *}}); fi
    done
    compadd "$@" -a names
}}

{functions}_topics() {{
    local context state state_descr line
    local -a commands common __topics_words
    typeset -A opt_args
    __topics_words=($words)
    commands=(
{about}    )
    common=(
{common}        '--help[Show help.]'
    )
    _arguments -C -S $common '1: :->command' '*:: :->rest' && return
    case $state in
    command) _describe -t commands command commands; return ;;
    esac
    case $words[1] in
{cases}    esac
}}

if [[ $funcstack[1] == _topics ]]; then _topics "$@"; else compdef _topics topics; fi
"""


def fish() -> str:
    """The script that fish sources."""
    lines = [
        f"complete -c topics -n __topics_wants_command -a {command.name} -d {_fish_quoted(command.summary)}\n"
        for command in _ALL.values()
    ]
    lines += [_fish_option(None, option) for option in COMMON]
    for command in _ALL.values():
        lines += [_fish_option(command, option) for option in command.options]
        for place, argument in enumerate(command.arguments):
            values = _fish_values(command, argument)
            if values:
                many = " more" if argument.many else ""
                lines.append(f"complete -c topics -n '__topics_at {command.name} {place}{many}' {values}\n")
    by_command = "".join(
        f"        case {command.name}\n            set -a valued {' '.join(flags)}\n"
        for command in _ALL.values()
        if (flags := [flag for option in command.options if option.kind is not FLAG for flag in option.flags])
    )
    return _FISH.format(
        made=_MADE,
        lines="".join(lines),
        valued=" ".join(flag for option in _VALUED for flag in option.flags),
        by_command=by_command,
        where=" ".join(flag for option in _PLACE for flag in option.flags),
        wait=WAIT_S,
        asked="".join(f"        case {sort}\n{_fish_asked(sort)}" for sort in ASKED),
    )


def _fish_asked(sort: str) -> str:
    if sort != "cursors":
        return f"            set asked {ASKED[sort]}\n"
    return (
        "            __topics_read\n            set -q __topics_words[2]; or return\n"
        f"            set asked {ASKED[sort]} $__topics_words[-1]\n"
    )


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_values(command: Command | None, item: Option | Argument) -> str:
    words = words_of(command, item)
    if words:
        return f"-a {_fish_quoted(' '.join(words))}"
    return {
        **{sort: f"-a '(__topics_names {sort})'" for sort in ASKED},
        "files": "-F",
        "directories": "-a '(__fish_complete_directories)'",
        "commands": "-a '(__fish_complete_command)'",
    }.get(sort_of(command, item), "")


def _fish_option(command: Command | None, option: Option) -> str:
    parts = ["complete -c topics"]
    if command is not None:
        parts.append(f"-n '__topics_in {command.name}'")
    parts += [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    parts.append(f"-d {_fish_quoted(option.help)}")
    if option.kind is not FLAG:
        values = _fish_values(command, option)
        parts += ["-r", values] if values == "-F" else ["-x", values]
    return " ".join(part for part in parts if part) + "\n"


_FISH = """{made}
# Puts the words before the cursor that are no options and no values of options (the command and its arguments) into
# __topics_words. fish asks for them for each line of this file, so they are kept while the line is the same.
function __topics_read
    set -l line (commandline -cp)
    test "$line" = "$__topics_line"; and return
    set -g __topics_line $line
    set -l valued {valued}
    set -l plain
    set -l skip 0
    set -l ended 0
    for word in (commandline -opc)[2..]
        if test $skip = 1
            set skip 0
        else if test $ended = 0; and test "x$word" = x--
            set ended 1
        else if test $ended = 0; and string match -q -- '-?*' $word
            if contains -- $word $valued
                set skip 1
            end
        else
            set -a plain $word
            if test (count $plain) = 1
                switch $word
{by_command}                end
            end
        end
    end
    set -g __topics_words $plain
end

function __topics_wants_command
    __topics_read
    not set -q __topics_words[1]
end

function __topics_in
    __topics_read
    test "$__topics_words[1]" = $argv[1]
end

function __topics_at # command, place, and whether there may be more
    __topics_read
    test "$__topics_words[1]" = $argv[1]; or return 1
    set -l place (math (count $__topics_words) - 1)
    test $place = $argv[2]; or test "$argv[3]" = more -a $place -gt $argv[2]
end

function __topics_names # what of, asked of the daemon that the line names
    set -l where
    set -l takes 0
    for word in (commandline -opc)
        if test $takes = 1
            set -a where $word
            set takes 0
        else if contains -- $word {where}
            set -a where $word
            set takes 1
        end
    end
    set -l asked
    switch $argv[1]
{asked}    end
    timeout {wait} topics -q --retry-for 0 $where $asked 2>/dev/null </dev/null | while read -l name type
        if test $argv[1] != queues -o "$type" = queue
            echo $name
        end
    end
end

complete -c topics -f
{lines}"""
