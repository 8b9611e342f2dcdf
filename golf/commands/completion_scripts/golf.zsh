#compdef golf
_golf() {
    local -a found
    found=(${(f)"$(golf completion words "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
    (( $#found )) || { _files; return; }
    compadd -Q -S '' -- ${(M)found:#(*[=.]|*=\[*)}
    compadd -Q -- ${found:#(*[=.]|*=\[*)}
}
compdef _golf golf
