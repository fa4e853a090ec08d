# The site of `make html`: links, anchors, pictures, equations; in a browser, where there is one.

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    if command -v cmark-gfm mandoc >/dev/null; then
        (cd "$SPX_ROOT" && PATH=$SPX_BUILD/bin:$PATH share/html/site.sh "$BATS_FILE_TMPDIR/html" "$SPX_BUILD/man") >&2
    fi
}

setup() {
    need_program mandoc cmark-gfm
    cd "$BATS_FILE_TMPDIR/html" || return
}

@test "every manual page is there, and the list of the manual has it with its purpose" {
    local m p
    for m in "$SPX_BUILD"/man/*.[157]; do
        p=$(basename "$m")
        grep -q '<h1 class="Sh" id="NAME">' "$p.html"
        grep -q "<li><a href=\"$p.html\">${p%.*}(${p##*.})</a>: .*[a-z]" manual.html
    done
    # the list of programs leads to their pages
    for p in $(programs); do
        grep -q "<td><a href=\"$p.1.html\"><code>$p</code></a></td>" index.html
    done
}

@test "links lead to pages and places that are there, pictures to files; nothing is loaded from elsewhere" {
    local f
    for f in *.html; do
        grep -o 'id="[^"]*"' "$f" | sed "s|id=\"\(.*\)\"|$f#\1|"
        echo "$f"
    done | sort >places
    for f in *.html; do
        grep -oE '(href|src)="[^"]*"' "$f" | sed 's/^[a-z]*="//; s/"$//' | grep -v -e '^https://' -e '^data:' |
            sed "s|^#|$f#|"
    done | sort -u >wanted
    # mandoc writes some letters as numbers, here and there alike
    comm -23 wanted places | while read -r f; do [ -f "$f" ] || echo "missing: $f"; done >missing
    rm places wanted
    [ ! -s missing ]
    rm missing
    [ -z "$(grep -lE '<script|src="http|@import|url\(' ./*.html style.css)" ]
    # mandoc finds a fault in no page
    [ -z "$(grep -l 'mandoc: ' ./*.html)" ]
}

@test "the tutorial has all its pictures, the methods their equations, tables their columns" {
    [ "$(grep -o '<math display="block">' specpipe-methods.7.html | wc -l)" -eq \
        "$(grep -c '^\.EQ' "$SPX_ROOT/man/specpipe-methods.7.in")" ]
    grep -q '<table>' index.html
    [ -z "$(grep -l 'raw HTML omitted' ./*.html)" ]
    need_program gnuplot
    grep -q '<figure><img src="pictures/desi.png"' specpipe-desi.7.html
    [ "$(grep -c '^<!-- picture ' "$SPX_ROOT/README.md")" -eq "$(grep -c '<figure><img src="pictures/' tutorial.html)" ]
}

@test "a browser shows all of it, on a telephone too, without a message on its console" {
    local browser
    browser=$(command -v chromium || command -v google-chrome || true)
    [ -n "$browser" ] || skip "no chromium is installed; links are checked by the test before"
    find_python json || skip "no Python"
    "$SPX_PYTHON" "$SPX_ROOT/tests/browse.py" "$browser" .
    # it notices: a link, a picture, a script that fails, something wide
    mkdir ../bad
    cp style.css ../bad
    {
        sed '/<\/nav>/q' index.html | sed 's/href="[a-z-]*[.157]*html"/href="index.html"/g'
        echo '<a href="index.html#nowhere">x</a><a href="none.html">x</a><img src="none.png">'
        echo '<div style="width: 900px">wide</div><script>failing()</script></body></html>'
    } >../bad/index.html
    run -1 "$SPX_PYTHON" "$SPX_ROOT/tests/browse.py" "$browser" ../bad
    [[ $output == *'no such place: index.html#nowhere'* && $output == *'leads nowhere: none.html'* ]]
    [[ $output == *'picture is missing'* && $output == *'Uncaught'* && $output == *'pixels wide'* ]]
}

@test "coming from others: programs and options that specpipe-peers(7) names are there" {
    local program rest o n=0
    while read -r program rest; do
        [ -x "$SPX_BUILD/bin/$program" ] || continue
        for o in $rest; do
            [[ $o == --* ]] || continue
            "$program" --help=names | grep -qxF -e "$o" || {
                echo "$program has no $o"
                return 1
            }
            n=$((n + 1))
        done
    done < <(sed -n 's/^\.Ql //p' "$SPX_ROOT/man/specpipe-peers.7.in" | sed 's/ [,:.]$//')
    [ "$n" -gt 40 ]
}
