"""Print the script for the Tab key in bash, zsh or fish.

    eval "$(golf completion bash)"       # in ~/.bashrc
    eval "$(golf completion zsh)"        # in ~/.zshrc, after compinit
    golf completion fish | source        # in ~/.config/fish/config.fish

The scripts call `golf completion words LINE`, which prints the candidates for the last word of a command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from golf.commands.parsing import CommandParser

# Readline splits words at = and : and replaces the last part alone, so what is before it is taken off.
BASH = r"""_golf() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local current="${line##*[[:space:]]}"
    local IFS=$'\n'
    COMPREPLY=($(golf completion words "$line" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*[$COMP_WORDBREAKS]}"}"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && (${COMPREPLY[0]} == *[=.] || ${COMPREPLY[0]} == *"["*) ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _golf golf
"""
ZSH = r"""#compdef golf
_golf() {
    local -a found
    found=(${(f)"$(golf completion words "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
    (( $#found )) || { _files; return; }
    compadd -Q -S '' -- ${(M)found:#(*[=.]|*=\[*)}
    compadd -Q -- ${found:#(*[=.]|*=\[*)}
}
compdef _golf golf
"""
FISH = r"""complete -c golf -a '(golf completion words (commandline --cut-at-cursor) 2>/dev/null)'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def parser() -> CommandParser:
    """Return the parser of `golf completion`."""
    made = CommandParser("completion", __doc__)
    made.add_argument("shell", choices=(*SHELLS, "words"), help="shell to print the script for")
    made.add_argument("line", nargs="?", default="golf ", help="command line to complete, for words")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print a shell's script, or the candidates for the last word of a command line."""
    args = parser().parse_intermixed_args(arguments)
    if args.shell == "words":
        from golf.commands.candidates import candidates

        typed = args.line.split()[1:]
        if args.line[-1:].isspace() or not typed:
            # After a blank a new word begins, of which nothing is typed yet.
            typed.append("")
        print("\n".join(candidates(typed)))
    else:
        print(SHELLS[args.shell], end="")
    return 0
