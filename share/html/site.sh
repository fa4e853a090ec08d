#!/usr/bin/env bash
# site.sh FOLDER MAN: the documentation as a site in FOLDER, of the manual pages in MAN, README.md, CONTRIBUTING.md and
# CHANGELOG.md: their text, and no other. Run in the root of the repository, with the programs on the PATH.
#
# Pictures come from the commands of the tutorial and of specpipe-desi(7), which are run, and from a small simulated night,
# whose page is shown too; without gnuplot there are none. specpipe-desi(7) takes DESI's files where $SPX_DESI has them, else a
# simulated exposure (tests/desi.sh, which needs the tests' h5edit).
# Needs mandoc and cmark-gfm.
set -euo pipefail
export LC_ALL=C.UTF-8

[ $# -eq 2 ] || {
    echo "usage: site.sh FOLDER MAN" >&2
    exit 2
}
for p in mandoc cmark-gfm; do
    command -v "$p" >/dev/null || {
        echo "site.sh: $p is not installed: apt-get install $p" >&2
        exit 1
    }
done
root=$PWD
man=$(cd "$2" && pwd)
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
new=$out.part
rm -rf "$new"
mkdir -p "$new/pictures"
work=$(mktemp -d)
trap 'rm -rf "$work" "$new"' EXIT
version=$(cat VERSION)

escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }

# head TITLE: the top of a page; foot: its end
head() {
    cat <<END
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><link rel="stylesheet" href="style.css"><title>$1</title></head><body>
<nav><a href="index.html"><b>specpipe</b></a> <a href="tutorial.html">Tutorial</a> <a href="install.html">Install</a> <a href="manual.html">Manual</a> $([ ! -e "$new/night.html" ] || echo '<a href="night.html">A night</a> ')<a href="specpipe-peers.7.html">Coming from ...</a> <a href="specpipe-reading.7.html">Python, MATLAB</a> <a href="specpipe-methods.7.html">Methods</a> <a href="specpipe-benchmarks.7.html">Benchmarks</a> <a href="changes.html">Changes</a></nav>
END
}
foot() { echo "<footer>specpipe $version</footer></body></html>"; }

# ---- the tutorial's pictures ----

if command -v gnuplot >/dev/null; then
    mkdir "$work/tutorial"
    awk -f share/tutorial.awk README.md | sed -n 's/^\$ //p' >"$work/commands"
    (cd "$work/tutorial" && bash -euo pipefail "$work/commands") >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        echo "site.sh: the tutorial's commands failed" >&2
        exit 1
    }
    # a night of three exposures, with the failures that `make simulate-night` asks for: its page, and the page's first picture
    (
        cd "$work"
        export NIGHT=20201214 EXPOSURES=3 FIBRES=25
        "$root/share/night/simulate.sh" night && cd night
        make -s -f "$root/share/reduce.mk" NIGHT=$NIGHT -j2 || true
        cp redux/$NIGHT/night.html "$new/" && specplot -q -k night --size 760,660 -o "$work/tutorial/night.svg" redux/$NIGHT/cframe-*.h5
    ) >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        echo "site.sh: the simulated night failed" >&2
        exit 1
    }
    sed -n 's/^<!-- picture \([^ ]*\) .*/\1/p' README.md | while read -r p; do
        cp "$work/tutorial/$p" "$new/pictures/"
    done
    mkdir "$work/desi"
    awk -f share/examples.awk man/specpipe-desi.7.in | sed -n 's/^\$ //p' >"$work/commands"
    (cd "$work/desi" && bash "$root/tests/desi.sh" desi && bash -euo pipefail "$work/commands") >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        echo "site.sh: the commands of specpipe-desi(7) failed" >&2
        exit 1
    }
    cp "$work/desi/compare.png" "$new/pictures/desi.png"
else
    echo "site.sh: the tutorial has no pictures: gnuplot is not installed" >&2
fi
light='a simulated exposure in place of the survey'"'"'s files'
[ -z "${SPX_DESI:-}" ] || light='DESI'"'"'s exposure'

# ---- manual pages ----

pages=()
for m in "$man"/*.[157]; do
    pages+=("$(basename "$m")")
    touch "$new/$(basename "$m").html" # mandoc links to files that are there
done
for p in "${pages[@]}"; do
    {
        head "${p%.*}(${p##*.})"
        (cd "$new" && mandoc -Thtml -O fragment,toc,'man=%N.%S.html;https://manpages.debian.org/%N.%S' "$man/$p") |
            sed 's/<math class="eqn">/<math display="block">/; s/<h1 class="Sh">TABLE OF CONTENTS/<h1 class="Sh">CONTENTS/' |
            if [ "$p" = specpipe-desi.7 ] && [ -e "$new/pictures/desi.png" ]; then
                # below the command that makes it
                awk -v figure="<figure><img src=\"pictures/desi.png\" alt=\"$light\"><figcaption>Two extractions of $light, and their differences</figcaption></figure>" '
                    { print } /-o compare.png/ { drawn = 1 } drawn && /<\/pre>/ { print figure; drawn = 0 }'
            else
                cat
            fi
        foot
    } >"$work/page"
    mv "$work/page" "$new/$p.html"
done

# ---- pages of Markdown ----

# page TITLE <MARKDOWN: with pictures, headings that can be linked to, and references to pages as links
printf '%s\n' "${pages[@]}" >"$work/pages"
page() {
    head "$1"
    awk -v pictures="$new/pictures/" '
        sub(/^<!-- picture /, "") {
            sub(/ -->$/, "")
            split($0, part, / \| /)
            if ((getline line < (pictures part[1])) >= 0)
                print "\n![" part[2] "](pictures/" part[1] ")\n"
            close(pictures part[1])
            next
        }
        { print }' |
        cmark-gfm -e table --validate-utf8 |
        awk -v pages="$work/pages" '
            # link to a file of the project, or to a section of README, as its page here, or as text
            function target(file) {
                return file ~ /^#tutorial/ ? "tutorial.html" : file == "#build-and-install" ? "install.html" : file == "CONTRIBUTING.md" ? "contributing.html" : file == "CHANGELOG.md" ? "changes.html" : file == "README.md" ? "index.html" : ""
            }
            BEGIN { while ((getline p < pages) > 0) { name = p; sub(/\.[157]$/, "", name); of[name] = p; of[name "(" substr(p, length(p)) ")"] = p } }
            /^<h[23]>/ {
                id = tolower($0)
                gsub(/<[^>]*>/, "", id)
                gsub(/[^a-z0-9]+/, "-", id)
                gsub(/^-|-$/, "", id)
                sub(/>/, " id=\"" id "\">")
            }
            /<p><img / {
                match($0, /alt="[^"]*"/)
                caption = substr($0, RSTART + 5, RLENGTH - 6)
                sub(/<p>/, "<figure>")
                sub(/<\/p>/, "<figcaption>" caption "</figcaption></figure>")
            }
            /<pre>/ { code = 1 }
            /<\/pre>/ { code = 0 }
            {
                rest = $0
                done = ""
                # relative links
                while (match(rest, /<a href="[^"]*">[^<]*<\/a>/)) {
                    link = substr(rest, RSTART, RLENGTH)
                    done = done substr(rest, 1, RSTART - 1)
                    rest = substr(rest, RSTART + RLENGTH)
                    split(link, part, "\"")
                    text = link
                    gsub(/<[^>]*>/, "", text)
                    done = done (target(part[2]) != "" ? "<a href=\"" target(part[2]) "\">" text "</a>" : part[2] ~ /^[a-z]+:|^#/ ? link : text)
                }
                rest = done rest
                done = ""
                # names of pages in code, and `man 7 name`
                while (!code && match(rest, /<code>(man [157] )?[a-z0-9-]+<\/code>|[a-z0-9-]+\([157]\)/)) {
                    word = substr(rest, RSTART, RLENGTH)
                    key = word
                    gsub(/<[^>]*>|^<code>man [157] /, "", key)
                    sub(/^man [157] /, "", key)
                    done = done substr(rest, 1, RSTART - 1) (key in of ? "<a href=\"" of[key] ".html\">" word "</a>" : word)
                    rest = substr(rest, RSTART + RLENGTH)
                }
                print done rest
            }'
    foot
}

# section NAME...: sections of README.md, of the second level
section() {
    local s
    for s in "$@"; do
        awk -v want="## $s" '/^## / { inside = index($0, want) == 1 } inside' README.md
    done
}

{
    awk '/^## Tutorial/ { exit } { print }' README.md
    section 'The programs' 'Cite it'
} | page specpipe >"$new/index.html"
section Tutorial | page 'Tutorial: from a FITS file to a velocity' >"$new/tutorial.html"
section 'Build and install' 'In Python' 'What it needs' | page 'Install specpipe' >"$new/install.html"
page 'Changes of specpipe' <CHANGELOG.md >"$new/changes.html"
{
    section 'For developers'
    tail -n +2 CONTRIBUTING.md
} | page 'Contributing to specpipe' >"$new/contributing.html"

# ---- the list of the manual ----

{
    echo '# Manual'
    echo
    for section in 1 7 5; do
        case $section in
        1) printf '\n## Programs\n\n' ;;
        7) printf '\n## Overviews\n\n' ;;
        5) printf '\n## Files\n\n' ;;
        esac
        for p in "${pages[@]}"; do
            [ "${p##*.}" != "$section" ] || printf -- '- %s: %s\n' "${p%.*}($section)" "$(sed -n 's/^\.Nd //p' "$man/$p" | escape)"
        done
    done
    printf '\n## For developers\n\n[CONTRIBUTING.md](CONTRIBUTING.md) has the map of the code and its rules.\n'
} | page 'Manual of specpipe' >"$new/manual.html"

cp "$root/share/html/style.css" "$new/"
rm -rf "$out"
mv "$new" "$out"
