# Manual pages: each program has one, it shows the options that the program has, and its examples run.

load common
load examples

setup_file() {
    # The data that the examples use, once for all pages.
    example_data
}

@test "every program has a page, and every page a program" {
    diff <(programs) <(cd "$SPX_ROOT/man" && ls ./*.1.in | sed 's|^\./||; s|\.1\.in$||')
}

@test "every page's examples are tested here" {
    diff <(programs) <(sed -n 's/^@test .*run_examples \(.*\)\.1;.*/\1/p' "$BATS_TEST_FILENAME")
}

@test "README and specpipe(7), its list and its references, name every program" {
    local p missing=
    for p in $(programs); do
        grep -q "^| \`$p\` |" "$SPX_ROOT/README.md" || missing+="README.md: $p"$'\n'
        grep -q "^\.It Xr $p 1\$" "$SPX_ROOT/man/specpipe.7.in" || missing+="man/specpipe.7.in, list: $p"$'\n'
        grep -q "^\.Xr $p 1 ,\$" "$SPX_ROOT/man/specpipe.7.in" || missing+="man/specpipe.7.in, SEE ALSO: $p"$'\n'
    done
    printf %s "$missing"
    [ -z "$missing" ]
}

@test "--help, --help=names and the page show the same options" {
    local p
    for p in $(programs); do
        "$p" --help=names | sort >names
        [ -s names ]
        [ -z "$(uniq -d names)" ] # an option of its own hides none that all have
        # A long option begins a line of the help, or follows a letter, or is only named at its end.
        "$p" --help | sed '/^Also, see/,$d' | grep -oE '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' >options
        "$p" --help | sed -n '/^Also, see/,/^$/p' | grep -oE -- '--[a-z0-9-]+' >also
        sort options also >help
        sed -n 's/^\.It .*Fl Fl \([a-z0-9-]*\).*/--\1/p' "$SPX_BUILD/man/$p.1" | sort >page
        diff names help
        diff names page
    done
}

@test "--help fills less than 80 columns, and shows a usage and an example that its program takes" {
    local p example
    for p in $(programs); do
        "$p" --help >help
        awk -v p="$p" 'length > 79 { print p ": " $0; bad = 1 } END { exit bad }' help
        grep -qE "^Usage: $p (--[a-z]+ [A-Z]+(,\.\.\.)? )?\[OPTION\.\.\.\]( |\$)" help
        example=$(sed -n 's/^Example: //p' help)
        [[ $example == "$p "* ]]
        # its options exist: with --version behind them none does anything
        eval "$example --version" | grep -q "^$p (specpipe)"
    done
}

@test "what completion offers for an option is what --help shows" {
    local p
    for p in $(programs); do
        "$p" --help=completion | awk -F '\t' 'NF != 5 || $0 ~ /\t\t/ { exit 1 }'
        diff <("$p" --help=completion | cut -f 1) <("$p" --help=names)
        # some programs have no choices
        "$p" --help=completion | awk -F '\t' '$4 ~ /^[^@-]/ { gsub(" ", "|", $4); print $1, $4 }' | sort >choices
        { "$p" --help | grep -oE -- '--[a-z0-9-]+ [a-z0-9]+([|][a-z0-9]+)+( |$)' || true; } | sed 's/ $//' | sort >help
        [ -z "$(comm -13 choices help)" ] # some show a name for the value instead
    done
    rvs-fit --help=completion | cut -f 1,4 | grep -x -e $'--joint\tno target all'
    h5reduce --help=completion | cut -f 2,4 | grep -x -e $'-p\t.*median'
    specpipe-info --help=completion | cut -f 1,3,4 | grep -x -e $'--clean\tFOLDER\t@folders'
    h5table --help=completion | cut -f 1,2,4 | grep -x -e $'--columns\t-c\t@columns'
}

@test "every option in an example is the program's" {
    local p o
    for p in $(programs); do
        examples_of "$SPX_ROOT/man/$p.1.in" | grep '^\$' | tr '|;&()' '\n\n\n\n\n' | sed 's/^[$ ]*//' |
            grep "^$p " | grep -oE -- ' --[a-z0-9-]+' | sort -u >used || true
        while read -r o; do
            "$p" --help=names | grep -qxF -e "$o" -e "${o/#--no-/--}" || [ "$o" = --help ] || [ "$o" = --version ] || {
                echo "$p: the page uses $o"
                return 1
            }
        done <used
    done
}

@test "every program's page has an example within its first 60 lines" {
    need_program mandoc
    local p
    for p in $(programs); do
        mandoc -Tascii "$SPX_BUILD/man/$p.1" | awk 'NR <= 60 && /^ +[$] / { found = 1 } END { exit !found }' || {
            echo "$p(1): no example in 60 lines"
            return 1
        }
    done
}

@test "a backslash of an example is one on the page, too" {
    # \e is a backslash; \( and \& begin a character, and \- is a minus; anything else is lost or another character
    awk 'FNR == 1 || /^\.Ed/ { display = 0 }
         /^\.Bd -literal/ { display = 1 }
         display && /\\[^e(&-]/ { print FILENAME ":" FNR ": " $0; bad = 1 }
         END { exit bad }' "$SPX_ROOT"/man/*.in
}

@test "columns of the tables in specpipe-schema(5) are as wide as their entries" {
    awk '/^\.Bl -column/ { n = split($0, width, "\""); tables++; next }
         /^\.El/ { n = 0 }
         n && /^\.It/ {
             m = split(substr($0, 5), cell, " Ta ")
             for (k = 1; k < m; k++)
                 if (length(cell[k]) > length(width[2 * k])) {
                     print FILENAME ":" FNR ": " cell[k]
                     bad = 1
                 }
         }
         END { exit bad || tables == 0 }' "$SPX_BUILD/man/specpipe-schema.5"
}

@test "the README's tutorial" { run_examples README; }

@test "examples: specpipe-schema" { run_examples specpipe-schema.5; }
@test "examples: specpipe-instrument" { run_examples specpipe-instrument.7; }
@test "examples: specpipe-night" { run_examples specpipe-night.7; }
@test "examples: burgers" { run_examples burgers.1; }
@test "examples: fits2h5" { run_examples fits2h5.1; }
@test "examples: h52fits" { run_examples h52fits.1; }
@test "examples: h5check" { run_examples h5check.1; }
@test "examples: h5merge" { run_examples h5merge.1; }
@test "examples: h5reduce" { run_examples h5reduce.1; }
@test "examples: h5stack" { run_examples h5stack.1; }
@test "examples: h5svd" { run_examples h5svd.1; }
@test "examples: h5table" { run_examples h5table.1; }
@test "examples: npz2h5" { run_examples npz2h5.1; }
@test "examples: rvs-fit" { run_examples rvs-fit.1; }
@test "examples: rvs-telluric" { run_examples rvs-telluric.1; }
@test "examples: rvs-template" { run_examples rvs-template.1; }
@test "examples: rvs-zero" { run_examples rvs-zero.1; }
@test "examples: specpipe-info" { run_examples specpipe-info.1; }
@test "examples: specplot" { need_program gnuplot; run_examples specplot.1; }
@test "examples: specx-extract" { run_examples specx-extract.1; }
@test "examples: specx-flat" { run_examples specx-flat.1; }
@test "examples: specx-flux" { run_examples specx-flux.1; }
@test "examples: specx-preproc" { run_examples specx-preproc.1; }
@test "examples: specx-psf" { run_examples specx-psf.1; }
@test "examples: specx-shift" { run_examples specx-shift.1; }
@test "examples: specx-sim" { run_examples specx-sim.1; }
@test "examples: specx-sky" { run_examples specx-sky.1; }
