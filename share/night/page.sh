#!/usr/bin/env bash
# page.sh FOLDER [PAGE]: the page of a night, FOLDER/night.html or PAGE, from the products in FOLDER and the records of
# what failed (PRODUCT.failed). One file with its pictures inside and no script; specplot makes numbers and pictures, and
# without gnuplot the page has no pictures and says so. The environment: NIGHT, its name, else that of FOLDER; PICTURES, of
# how many groups stars are drawn (16).
set -euo pipefail
folder=${1:?usage: page.sh FOLDER [PAGE]}
page=${2:-$folder/night.html}
here=$(cd "$(dirname "$0")" && pwd)
cd_page=$(cd "$(dirname "$page")" && pwd)/$(basename "$page")
cd "$folder"
work=$(mktemp -d "${TMPDIR:-/tmp}/night-page.XXXXXX")
trap 'rm -rf "$work"' EXIT
night=${NIGHT:-$(basename "$PWD")}
most=${PICTURES:-16}
if [[ ! $most =~ ^[0-9]+$ ]]; then
    echo "page.sh: PICTURES=$most: give a number" >&2
    exit 2
fi

# all PATTERN: the files that match, one a line, in order
all() { compgen -G "$1" | LC_ALL=C sort || true; }
escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }

# ---- numbers ----

# The frame of a camera and exposure that is farthest: calibrated, without sky, or extracted.
{ all 'sframe-*.h5' && all 'sframe-*.h5.failed'; } | sed 's/^sframe-//; s/\.h5.*//' | LC_ALL=C sort -u | while read -r stem; do
    for kind in cframe sframe frame; do
        if [ -e "$kind-$stem.h5" ]; then
            echo "$kind-$stem.h5"
            break
        fi
    done
done >"$work/frames"
if [ -s "$work/frames" ]; then
    mapfile -t frames <"$work/frames"
    specplot -q -k night --table "${frames[@]}" >"$work/table"
else
    frames=()
    : >"$work/table"
fi
mapfile -t cameras < <({ all 'psf-*.h5' && all 'psf-*.h5.failed'; } | sed 's/^psf-//; s/[.-].*//' | LC_ALL=C sort -u)
mapfile -t groups < <(all 'rv-*.h5')
mapfile -t standards < <(all 'standards-*.h5')

# Stars: group, VRAD_ERR, RVS_WARN.
for g in ${groups[@]+"${groups[@]}"}; do
    h5table -q --csv -t /rvfit/table -c VRAD_ERR,RVS_WARN "$g" | tail -n +2 | sed "s/^/$g,/"
done >"$work/stars"
# Groups that are drawn: half of them those with most stars of a group that has too many warnings (velocities), the others
# those with most stars.
stars=$(awk -F , '
    { n[$1]++; bad[$1] += $3 != 0 }
    END { for (g in n) print (bad[g] > 0.2 * n[g] ? bad[g] : 0), n[g], g }' "$work/stars" |
    LC_ALL=C sort -k 1,1nr -k 2,2nr -k 3 | awk -v most="$most" '
    { g[NR] = $3; n[NR] = $2 }
    $1 > 0 && NR <= most / 2 { take[NR] = 1; left++ }
    END {
        for (; left < most && left < NR; left++) {
            best = 0
            for (i = 1; i <= NR; i++) if (!(i in take) && (!best || n[i] > n[best])) best = i
            take[best] = 1
        }
        for (i = 1; i <= NR; i++) if (i in take) print g[i]
    }' | LC_ALL=C sort)
mapfile -t drawn <<<"$stars"
[ -n "$stars" ] || drawn=()

# ---- pictures: a line each, NAME and the arguments of specplot; made side by side ----

# of a camera, its last exposure
last() { printf '%s\n' ${frames[@]+"${frames[@]}"} | { grep -- "-$1-" || true; } | tail -n 1; }
{
    [ ${#frames[@]} -eq 0 ] || echo "night.svg -k night --size 760,660 @frames"
    for g in ${drawn[@]+"${drawn[@]}"}; do
        echo "stars-${g%.h5}.svg -k stars --size 700,340 $g"
    done
    [ ${#standards[@]} -lt 2 ] || echo "standards.svg -k repeats --size 700,320 @standards"
    [ ${#groups[@]} -lt 2 ] || echo "twice.svg -k repeats --size 700,320 @groups"
    for c in ${cameras[@]+"${cameras[@]}"}; do
        [ ! -e "flat-$c.h5" ] || echo "flat-$c.png -k flat --zoom 1 --size 700,600 flat-$c.h5"
        f=$(last "$c")
        case $f in
        '') ;;
        frame-*) echo "frame-$c.png -k frame --zoom 1 --size 700,520 $f" ;;
        *) echo "sky-$c.png -k sky --zoom 1 --size 700,520 $f" ;;
        esac
        case $f in
        cframe-*) echo "flux-$c.png -k flux --zoom 1 --size 700,460 $f" ;;
        esac
        [ -z "$f" ] || [ ! -e "psf-${f#*-}" ] || echo "shift-$c.png -k shift --zoom 1 --size 700,520 psf-${f#*-}"
    done
} >"$work/pictures"
printf '%s\n' ${groups[@]+"${groups[@]}"} >"$work/groups"
printf '%s\n' ${standards[@]+"${standards[@]}"} >"$work/standards"
draw() {
    local out=$1/$2 a args=()
    shift 2
    for a in "$@"; do
        case $a in
        @*) while read -r f; do args+=("$f"); done <"${out%/*}/${a#@}" ;;
        *) args+=("$a") ;;
        esac
    done
    OMP_NUM_THREADS=1 specplot -q -o "$out" "${args[@]}" 2>"$out.message" || true
}
export -f draw
without=
command -v gnuplot >/dev/null || without='without pictures: gnuplot is not installed'
if [ -z "$without" ]; then
    # shellcheck disable=SC2016
    xargs -r -P "$(nproc)" -L 1 bash -c 'draw "$0" "$@"' "$work" <"$work/pictures"
else
    echo "page.sh: $page is $without" >&2
fi

# picture NAME TEXT: a figure, where the picture could be drawn
picture() {
    local type=svg+xml
    [ -s "$work/$1" ] || return 0
    [[ $1 == *.svg ]] || type=png
    printf '<figure><div class="scroll"><img alt="%s" src="data:image/%s;base64,' "$2" "$type"
    base64 -w 0 "$work/$1"
    printf '"></div><figcaption>%s</figcaption></figure>\n' "$2"
}

# ---- the page ----

# awk: median and farthest from 0 of a list of numbers; whether a number is known.
functions='
    function median(list,   n, v, i, j, t) {
        n = split(list, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n == 0 ? "" : n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function far(list,   n, v, i, x) {
        n = split(list, v, " "); x = ""
        for (i = 1; i <= n; i++) if (x == "" || v[i] * v[i] > x * x) x = v[i]
        return x
    }
    function known(x) { return x != "nan" && x != "-nan" && x != "" }
    # a cell of a table with a number, or with a dash
    function cell(x, form, scale, odd) {
        x = x == "" ? "–" : sprintf(form, x * scale)
        if (x ~ /^-0(\.0*)?$/) x = substr(x, 2)
        sub(/^-/, "−", x)
        return "<td" (odd ? " class=odd" : "") ">" x
    }
'

# Rows of the exposures: each camera's signal-to-noise ratio, and by what it should be after its exposure time, as the other
# exposures of the camera have it.
exposures() {
    awk -F '\t' "$functions"'
        NR == 1 { for (i = 1; i <= NF; i++) col[$i] = i; next }
        {
            e = $col["exposure"]; c = $col["camera"]; a = c; if (match(a, /-[A-Za-z][^-]*$/)) a = substr(a, RSTART + 1); sub(/[0-9].*/, "", a)
            if (!(e in seen)) { seen[e] = ++n; exposure[n] = e; tile[n] = $col["tile"]; mjd[n] = $col["mjd"]; time[n] = $col["exptime"] }
            if (!(a in arms)) { arms[a] = ++m; arm[m] = a }
            s = $col["snr"]
            if (known(s)) {
                snr[e, a] = snr[e, a] " " s
                if (time[n] > 0) { speed = s / sqrt(time[n]); rate[c] = rate[c] " " speed; own[e, c] = speed; has[e, a] = has[e, a] " " c }
            }
            if (known($col["sky"])) sky[e, a] = sky[e, a] " " $col["sky"]
            if (known($col["sky_chi2"])) chi[e] = chi[e] " " $col["sky_chi2"]
        }
        END {
            if (n == 0) exit
            printf "<div class=scroll><table><thead><tr><th rowspan=2>exposure<th rowspan=2>tile<th rowspan=2>middle<br>UTC<th rowspan=2>time<br>s<th colspan=%d>S/N of a bin<th colspan=%d>S/N ÷ expected<th colspan=%d>sky, electrons / Å<th rowspan=2>χ²/dof<br>of sky<tr>", m, m, m
            for (g = 0; g < 3; g++) for (k = 1; k <= m; k++) printf "<th>%s", arm[k]
            print "</thead><tbody>"
            for (i = 1; i <= n; i++) {
                e = exposure[i]
                h = (mjd[i] - int(mjd[i])) * 24
                printf "<tr><td>%s<td>%s<td>%s<td>%s", e, tile[i], known(mjd[i]) ? sprintf("%02d:%02d", h, (h - int(h)) * 60) : "", known(time[i]) ? time[i] : ""
                for (k = 1; k <= m; k++) { x = median(snr[e, arm[k]]); printf "%s", cell(x, "%.1f", 1, x == "") }
                for (k = 1; k <= m; k++) {
                    list = ""; nc = split(has[e, arm[k]], cs, " ")
                    for (q = 1; q <= nc; q++) { r = median(rate[cs[q]]); if (r > 0) list = list " " own[e, cs[q]] / r }
                    x = median(list)
                    printf "%s", cell(x, "%.2f", 1, x == "" || x < 0.7)
                }
                for (k = 1; k <= m; k++) { x = median(sky[e, arm[k]]); printf "%s", cell(x, "%.0f", 1, 0) }
                x = median(chi[e]); print cell(x, "%.2f", 1, x > 1.2)
            }
            print "</tbody></table></div>"
        }' "$work/table"
}

# Rows of the cameras: medians of their frames, and the largest shift.
camera_table() {
    awk -F '\t' "$functions"'
        NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
        {
            if (!($1 in seen)) { seen[$1] = ++n; camera[n] = $1 }
            frames[$1]++
            for (i = 6; i <= NF; i++) if (known($i)) v[$1, name[i]] = v[$1, name[i]] " " $i
        }
        END {
            if (n == 0) exit
            print "<div class=scroll><table><thead><tr><th rowspan=2>camera<th rowspan=2>frames<th colspan=2>largest shift of traces, pixels<th rowspan=2>zero point<br>Å<th rowspan=2>χ² a pixel<br>of the extraction<th rowspan=2>masked<br>bins, %<th rowspan=2>pixels hit by<br>cosmic rays<th rowspan=2>χ²/dof<br>of sky<th rowspan=2>stars of the<br>response<tr><th>across<th>along</thead><tbody>"
            for (i = 1; i <= n; i++) {
                c = camera[i]
                dx = far(v[c, "dx"]); dy = far(v[c, "dy"]); m = median(v[c, "masked"]); s = median(v[c, "sky_chi2"]); f = median(v[c, "flux_stars"])
                printf "<tr><td>%s<td>%d%s%s%s%s%s%s%s%s\n", c, frames[c], cell(dx, "%.3f", 1, dx * dx > 0.09), cell(dy, "%.3f", 1, dy * dy > 0.09),
                    cell(median(v[c, "zero_point"]), "%.4f", 1, 0), cell(median(v[c, "chi2pix"]), "%.2f", 1, 0), cell(m, "%.2f", 100, m > 0.05),
                    cell(median(v[c, "cosmic_pixels"]), "%.0f", 1, 0), cell(s, "%.2f", 1, s > 1.2), cell(f, "%.0f", 1, f != "" && f < 3)
            }
            print "</tbody></table></div>"
        }' "$work/table"
}

# Rows of the groups: stars, and how many have each bit of RVS_WARN.
velocities() {
    [ ${#groups[@]} -gt 0 ] || return 0
    awk -F , "$functions"'
        { g = $1; if (!(g in seen)) { seen[g] = ++n; group[n] = g } stars[g]++
          if ($3 == 0) { good[g]++; e[g] = e[g] " " $2 }
          for (b = 1; b <= 1048576; b *= 2) if (int($3 / b) % 2) { bits[g, b]++; any[b] = 1 } }
        END {
            text[1] = "no lines"; text[2] = "edge of velocities"; text[4] = "error above 100 km/s"; text[8] = "edge of parameters"; text[16] = "v sin i above 100 km/s"
            text[32] = "bad spectrum"; text[64] = "bad curvature"; text[128] = "bad profile"; text[256] = "χ² not of noise"; text[512] = "negative light"; text[1024] = "exposures disagree"; text[2048] = "templates too wide"; text[4096] = "arms disagree"
            printf "<div class=scroll><table><thead><tr><th>group<th>stars<th>without<br>warning<th>median error<br>km/s"
            for (b = 1; b <= 1048576; b *= 2) if (any[b]) printf "<th>%s<br>(%d)", b in text ? text[b] : "bit", b
            print "</thead><tbody>"
            for (i = 1; i <= n; i++) {
                g = group[i]; m = median(e[g])
                printf "<tr><td>%s<td>%d<td%s>%.0f %%<td>%s", g, stars[g], good[g] < 0.8 * stars[g] ? " class=odd" : "", 100 * good[g] / stars[g], m == "" ? "–" : sprintf("%.2f", m)
                for (b = 1; b <= 1048576; b *= 2) if (any[b]) printf "<td>%d", bits[g, b]
                print ""
            }
            print "</tbody></table></div>"
        }' "$work/stars"
}

# Failures that others follow from, with the message and the command that does it again; then those that follow.
failures() {
    local r
    for r in *.failed; do
        if [ ! -e "$r" ] || [ -e "${r%.failed}" ] || ! grep -qx 'because: ' "$r"; then
            continue
        fi
        printf '<details open><summary>%s</summary>\n<pre>%s</pre>\n<p>Again:</p><pre>cd %s\n%s</pre></details>\n' \
            "$(escape <<<"${r%.failed}")" "$(sed -n '/^message:$/,$s/^    //p' "$r" | escape)" \
            "$(printf %q "$(sed -n 's/^folder: //p' "$r")" | escape)" "$(sed -n '/^command:$/,/^message:$/s/^    //p' "$r" | escape)"
    done
    if grep -lq '^because: .' ./*.failed 2>/dev/null; then
        echo '<p>These follow from that:</p><ul>'
        for r in *.failed; do
            [ -e "${r%.failed}" ] || ! grep -q '^because: .' "$r" || printf '<li>%s without %s\n' \
                "$(escape <<<"${r%.failed}")" "$(sed -n 's/^because: //p' "$r" | escape)"
        done
        echo '</ul>'
    fi
}

failures >"$work/failures"
nfail=$(all '*.failed' | while read -r r; do [ -e "${r%.failed}" ] || echo "$r"; done | wc -l)
nexp=$(awk -F '\t' 'NR > 1 && !s[$2]++ { n++ } END { print n + 0 }' "$work/table")
nstar=$(awk -F , '{ n++; g += $3 == 0 } END { printf "%d of %d", g, n }' "$work/stars")

# Under one name, so that what a killed one leaves is overwritten by the next.
out=$(dirname "$cd_page")/.$(basename "$cd_page").part
{
    cat <<'END'
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>
:root { --ink: #222; --soft: #666; --line: #ddd; --odd: #fbe3d2; --blue: #0072B2; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 0 1rem 3rem; max-width: 1240px; color: var(--ink); background: #fff; font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 1.2rem 0 0.4rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.6rem; padding-top: 0.6rem; border-top: 1px solid var(--line); }
nav a { margin-right: 1rem; color: var(--blue); }
.sum { display: flex; flex-wrap: wrap; gap: 0.6rem 2rem; margin: 0.8rem 0; padding: 0; list-style: none; }
.sum b { display: block; font-size: 1.35rem; }
.bad b { color: #b34700; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; font-size: 0.9rem; }
th { text-align: right; font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--soft); padding: 0.15rem 0.6rem; }
td { text-align: right; padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--line); }
tr:first-child th:first-child, td:first-child { text-align: left; padding-left: 0; }
th[colspan] { text-align: center; }
.odd { background: var(--odd); }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 1rem; }
figure { margin: 0.8rem 0; min-width: 0; }
figure img { display: block; width: 100%; max-width: 900px; min-width: 520px; height: auto; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 0.2rem; }
pre { overflow-x: auto; background: #f6f6f6; padding: 0.5rem; font-size: 0.85rem; }
summary { cursor: pointer; font-weight: 600; }
.note { color: var(--soft); font-size: 0.9rem; }
</style>
END
    printf '<title>Night %s</title></head><body>\n<h1>Night %s</h1>\n' "$(escape <<<"$night")" "$(escape <<<"$night")"
    echo '<nav><a href="#exposures">Exposures</a> <a href="#cameras">Cameras</a> <a href="#velocities">Velocities</a> <a href="#failures">Failures</a></nav>'
    printf '<ul class="sum"><li><b>%s</b> exposures<li><b>%s</b> frames of %s cameras<li><b>%s</b> stars without a warning<li%s><b>%s</b> products failed</ul>\n' \
        "$nexp" "${#frames[@]}" "${#cameras[@]}" "$nstar" "$([ "$nfail" -eq 0 ] || echo ' class=bad')" "$nfail"
    [ -z "$without" ] || echo "<p class=note>The page is $without.</p>"
    echo '<h2 id="exposures">Exposures</h2>'
    exposures
    echo '<p class=note>S/N: median of the targets of all spectrographs. Expected: what the other exposures of the camera reach, by the root of the exposure time. Coloured: below 0.7 of that, absent, or χ² above 1.2.</p>'
    picture night.svg "Exposure by exposure; a symbol is a camera"
    echo '<h2 id="cameras">Cameras</h2>'
    camera_table
    echo '<p class=note>Medians of all exposures. Coloured: shifts above 0.3 pixel, more than 5 % masked, χ² of the sky above 1.2, fewer than 3 stars.</p>'
    for c in ${cameras[@]+"${cameras[@]}"}; do
        printf '<details><summary>camera %s</summary><div class="two">\n' "$(escape <<<"$c")"
        picture "flat-$c.png" "Flat of camera $c"
        picture "sky-$c.png" "Sky of camera $c in its last exposure"
        picture "frame-$c.png" "Frame of camera $c in its last exposure, with the sky"
        picture "flux-$c.png" "Response of camera $c in its last exposure"
        picture "shift-$c.png" "Traces of camera $c in its last exposure"
        echo '</div></details>'
    done
    echo '<h2 id="velocities">Velocities</h2>'
    velocities
    echo '<div class="two">'
    for g in ${drawn[@]+"${drawn[@]}"}; do
        picture "stars-${g%.h5}.svg" "Stars of $g: parameters, and errors of the velocities"
    done
    picture standards.svg "Standard stars: velocities of one exposure after the other"
    picture twice.svg "Stars in several groups"
    echo '</div>'
    if [ ${#drawn[@]} -lt ${#groups[@]} ] && [ -z "$without" ]; then
        printf '<p class=note>Stars of %d of %d groups are drawn: those with most warnings, where these are more than 20 %%, and with most stars. Another one, such as the last, or more of them:</p><pre>cd %s\nspecplot -k stars -o stars.svg %s\nPICTURES=%d %s .</pre>\n' \
            ${#drawn[@]} ${#groups[@]} "$(printf %q "$PWD" | escape)" "$(escape <<<"${groups[-1]}")" ${#groups[@]} "$(printf %q "$here/page.sh" | escape)"
    fi
    echo '<h2 id="failures">Failures</h2>'
    if [ -s "$work/failures" ]; then cat "$work/failures"; else echo '<p>None.</p>'; fi
    printf '<p class=note>Made by %s of the products in %s.</p></body></html>\n' "$(specplot --version | escape)" "$(escape <<<"$PWD")"
} >"$out"
mv "$out" "$cd_page"
