# Readline splits words at = and : and replaces the last part alone, so what is before it is taken off.
_golf() {
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
