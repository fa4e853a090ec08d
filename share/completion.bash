# shellcheck shell=bash
# Bash completion of specpipe's programs: options come from the program itself, everything else is a file name.
_specpipe() {
    local word=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$("$1" --help=names 2>/dev/null)" -- "$word") ;;
    esac
}
# -o default completes file names where the function offers nothing.
complete -o bashdefault -o default -F _specpipe \
    @TOOLS@
