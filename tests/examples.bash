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

# What the README's tutorial quotes of the programs' reports, a quotation a line: those in the sentence that has "reports".
quoted_reports() {
    sed -n '/^## Tutorial/,/^## /p' "$SPX_ROOT/README.md" | grep -v '^    ' | tr '\n' ' ' |
        awk '{ while (match($0, / reports /)) {
                   $0 = substr($0, RSTART + RLENGTH)
                   while (match($0, /`[^`]*`/) && substr($0, 1, RSTART) !~ /[.;] /) {
                       print substr($0, RSTART + 1, RLENGTH - 2)
                       $0 = substr($0, RSTART + RLENGTH)
                   }
               } }'
}

# was_said TEXT FILE: a line of FILE has these words, and numbers that differ by less than a thousandth, or by one in their
# last digit.
was_said() {
    awk -v text="$1" 'function words(line, to,    n, i) {
             gsub(/[(),;:]/, " ", line)
             n = split(line, to, " ")
             return n
         }
         function same(a, b,    d, last) {
             if (a == b || a !~ number || b !~ number)
                 return a == b
             d = a > b ? a - b : b - a
             last = index(a, ".") > 0 ? 10 ^ (index(a, ".") - length(a)) : 0
             return d < 1.5 * last || d * d < 1e-6 * a * a
         }
         BEGIN { number = "^-?[0-9]+([.][0-9]+)?$"; want = words(text, w) }
         { n = words($0, g)
           for (i = 0; i + want <= n && !found; i++) {
               for (k = 1; k <= want && same(w[k], g[i + k]); k++)
                   ;
               found = k > want
           } }
         END { exit !found }' "$2"
}

# Runs one example and compares its output, where the page shows some; ... in it stands for anything.
check_example() {
    local command=$1 want=$2 got
    [ -n "$command" ] || return 0
    if ! got=$(bash -o pipefail -c "$command" 2>stderr.txt); then
        printf 'failed: %s\n%s\n' "$command" "$(cat stderr.txt)"
        return 1
    fi
    cat stderr.txt >>said.txt
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

check_reports() {
    local quote n=0
    while IFS= read -r quote; do
        n=$((n + 1))
        was_said "$quote" said.txt || {
            printf 'no program says: %s\nthey say:\n%s\n' "$quote" "$(cat said.txt)"
            return 1
        }
    done < <(quoted_reports)
    [ "$n" -gt 0 ]
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
    [ "$1" != README ] || check_reports || return
    [ "$count" -gt 0 ]
}
