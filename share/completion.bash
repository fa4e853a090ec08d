# shellcheck shell=bash
# Bash completion of specpipe's programs: options, and what may follow those that are choices, come from the program
# itself, everything else is a file name.
_specpipe() {
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    # bash makes three words of --name=value
    case $word in
    =) word= ;;
    *) [ "$option" != = ] || option=${COMP_WORDS[COMP_CWORD - 2]} ;;
    esac
    case $option in
    -*) mapfile -t COMPREPLY < <(compgen -W "$("$1" --help=choices 2>/dev/null |
        awk -v o="$option" '$1 == o { print $2 }')" -- "$word") ;;
    esac
    case ${#COMPREPLY[@]}$word in
    0-*) mapfile -t COMPREPLY < <(compgen -W "$("$1" --help=names 2>/dev/null)" -- "$word") ;;
    esac
}
# -o default completes file names where the function offers nothing.
complete -o bashdefault -o default -F _specpipe \
    @TOOLS@
