function __kubechronicle
    set -l typed (commandline -opc)
    kubechronicle completion words $typed[2..] (commandline -ct) 2>/dev/null
end
complete -c kubechronicle -f -a '(__kubechronicle)'
complete -c kubectl-chronicle -f -a '(__kubechronicle)'
