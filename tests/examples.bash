# shellcheck shell=bash
# Provides run_examples PAGE: the examples of a manual page, or of the README, run and compared (man/README).

# Prints the examples of a page, of its sections QUICK START and EXAMPLES: lines `$ command` (continued lines joined) and
# lines of the output wanted. Indented displays are not run.
examples_of() { awk -f "$SPX_ROOT/share/examples.awk" "$1"; }

# The same of the README's tutorial, without its pictures where there is no gnuplot.
tutorial() {
    awk -f "$SPX_ROOT/share/tutorial.awk" "$SPX_ROOT/README.md" |
        if command -v gnuplot >/dev/null; then cat; else grep -v '^\$ specplot'; fi
}

# same_text GOT WANT: equal but for the number of blanks, and for numbers that differ by less than a thousandth, which
# rounding may change from processor to processor.
same_text() {
    awk 'function text(file, word,    n, line, k, part) {
             n = 0
             while ((getline line <file) > 0) {
                 k = split(line, part, " ")
                 for (i = 1; i <= k; i++)
                     word[++n] = part[i]
                 word[++n] = "\n"
             }
             return n
         }
         BEGIN {
             n = text(ARGV[1], got)
             if (n != text(ARGV[2], want))
                 exit 1
             number = "^-?[0-9]+([.][0-9]+)?$"
             for (k = 1; k <= n; k++) {
                 if (got[k] == want[k])
                     continue
                 if (got[k] !~ number || want[k] !~ number || got[k] want[k] !~ /[.]/)
                     exit 1
                 d = got[k] - want[k]
                 if (d * d > 1e-6 * want[k] * want[k])
                     exit 1
             }
         }' <(printf '%s\n' "$1") <(printf '%s\n' "$2")
}

# Runs one example and compares its output, where the page shows some; ... in it stands for anything.
check_example() {
    local command=$1 want=$2 got
    [ -n "$command" ] || return 0
    if ! got=$(bash -o pipefail -c "$command" 2>stderr.txt); then
        printf 'failed: %s\n%s\n' "$command" "$(cat stderr.txt)"
        return 1
    fi
    [ -n "$want" ] || return 0
    ! same_text "$got" "$want" || return 0
    want=$(sed 's/[][\\*?]/\\&/g; s/\.\.\./*/g' <<<"$want")
    # A pattern on purpose.
    # shellcheck disable=SC2053
    if [[ $got != $want ]]; then
        printf 'output of: %s\nis:\n%s\nbut the page shows:\n%s\n' "$command" "$got" "$2"
        return 1
    fi
}

# run_examples PAGE: the examples of man/PAGE.in, or of the README's tutorial.
run_examples() {
    local line command='' want='' count=0
    # The tutorial makes its own data.
    [ "$1" = README ] || [ ! -e "$BATS_FILE_TMPDIR/data" ] || cp -R "$BATS_FILE_TMPDIR/data/." .
    while IFS= read -r line; do
        case $line in
        '$ '*)
            check_example "$command" "$want" || return
            command=${line#'$ '} want='' count=$((count + 1))
            ;;
        *) want=${want:+$want$'\n'}$line ;;
        esac
    done < <(if [ "$1" = README ]; then tutorial; else examples_of "$SPX_ROOT/man/$1.in"; fi)
    check_example "$command" "$want" || return
    [ "$count" -gt 0 ]
}
