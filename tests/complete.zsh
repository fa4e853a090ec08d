# zsh -f complete.zsh FOLDER LINE: what zsh offers behind LINE, a candidate a line, with the completion in FOLDER.
#
# Completion runs in zsh's line editor alone: so a zsh on a pseudo-terminal gets LINE and a tab, and its compadd tells what
# it is given, between two lines with a NUL.
zmodload zsh/zpty || exit 77
setopt rcquotes
zpty shell zsh -f -i
() {
    local line
    zpty -w shell source $1
    repeat 4; do
        zpty -r shell line
        [[ $line != ready* ]] || return 0
    done
    exit 1
} =(<<<'
PROMPT=
fpath=('$1' $fpath)
autoload -U compinit
compinit -u -D
bindkey ''^M'' undefined-key
bindkey ''^J'' undefined-key
bindkey ''^I'' complete-word
border() { print -r -- $''\0'' }
compprefuncs=(border)
comppostfuncs=(border exit)
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a hits
    builtin compadd -A hits "$@"
    [[ $#hits -eq 0 ]] || print -rl -- $hits
    builtin compadd "$@"
}
print ready')
zpty -w shell "$2"$'\t'
integer inside=0
while zpty -r shell; do :; done | while IFS= read -r line; do
    if [[ $line == *$'\0'* ]]; then
        ((inside++)) && exit 0
    elif ((inside)); then
        print -r -- ${line%$'\r'}
    fi
done
