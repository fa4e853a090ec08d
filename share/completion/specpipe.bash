# shellcheck shell=bash
# Completion of specpipe's programs in bash: options, and what may follow them, come from the program itself
# (--help=completion, libcommon/app/opt.h); names of tables and columns from the file on the command line.

# _specpipe_names WHAT: names in the last file on the command line, of tables, or of the columns of a table.
_specpipe_names() {
    local w file='' table=''
    for w in "${COMP_WORDS[@]:1}"; do
        [[ $w != /* || -f $w ]] || table=$w
        [ ! -f "$w" ] || file=$w
    done
    [ -z "$file" ] || "${COMP_WORDS[0]}" --list "$file" 2>/dev/null | awk -v what="$1" -v table="$table" '
        NR == 1 { next }
        what == "tables" { print $1; next }
        table == "" && !n++ || table == $1 { gsub(",", "\n", $3); print $3 }'
}

_specpipe() {
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} offers='' before=''
    COMPREPLY=()
    # bash makes three words of --name=value
    case $word in
    =) word= ;;
    *) [ "$option" != = ] || option=${COMP_WORDS[COMP_CWORD - 2]} ;;
    esac
    case $option in
    -*) offers=$("$1" --help=completion 2>/dev/null | awk -F '\t' -v o="$option" '$1 == o || $2 == o { print $4 }') ;;
    esac
    case $offers in
    @folders) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    @columns)
        [[ $word != *,* ]] || before=${word%,*},
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$(_specpipe_names columns)" -- "${word##*,}")
        compopt -o nospace 2>/dev/null
        ;;
    @tables) mapfile -t COMPREPLY < <(compgen -W "$(_specpipe_names tables)" -- "$word") ;;
    [!@-]*) mapfile -t COMPREPLY < <(compgen -W "$offers" -- "$word") ;;
    esac
    case ${#COMPREPLY[@]}$word in
    0-*) mapfile -t COMPREPLY < <(compgen -W "$("$1" --help=names 2>/dev/null)" -- "$word") ;;
    esac
}
# -o default completes file names where the function offers nothing.
complete -o bashdefault -o default -F _specpipe \
    @TOOLS@
