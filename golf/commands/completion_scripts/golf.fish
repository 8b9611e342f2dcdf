complete -c golf -a '(golf completion words (commandline --cut-at-cursor) 2>/dev/null)'
