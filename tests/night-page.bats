# share/night/page.sh: the page of a night, opened in a browser.
load common

# A folder of two exposures of cameras b0 and r0, and of records of failures, one with text that HTML would take for its own.
setup_file() {
    example_data
    cd "$BATS_FILE_TMPDIR/data" || return
    local night=$BATS_FILE_TMPDIR/20201214 e
    mkdir "$night" || return
    specx-sky -q frame-r0.h5 -o sframe-r0.h5 && specx-sky -q frame-b0.h5 -o sframe-b0.h5
    specx-flux -q --fit stars-r0.h5 sframe-r0.h5 -o cframe-r0.h5
    specx-flat -q lamp-r0-1.h5 -o "$night/flat-r0.h5"
    specx-shift -q image-r0.h5 --wavelength 6420,6580,0.8 --psf-only -o "$night/psf-r0-00000012.h5"
    for e in 00000012 00000013; do
        cp sframe-r0.h5 "$night/sframe-r0-$e.h5"
        cp cframe-r0.h5 "$night/cframe-r0-$e.h5"
        cp stars-r0.h5 "$night/standards-0-$e.h5"
    done
    cp sframe-b0.h5 "$night/sframe-b0-00000012.h5"
    cp rv.h5 "$night/rv-100.h5"
    cat >"$night/psf-b0-00000013.h5.failed" <<'END'
product: redux/psf-b0-00000013.h5
status: 3
because: 
folder: /data/night
command:
    specx-shift <image> & more
message:
    specx-shift: <script>document.title = "hit"</script> is no image
END
    sed 's/^product.*/product: redux\/sframe-b0-00000013.h5/; s/^because: /&redux\/psf-b0-00000013.h5/' \
        "$night/psf-b0-00000013.h5.failed" >"$night/sframe-b0-00000013.h5.failed"
}

@test "the page of a night: its numbers, and what failed" {
    local night=$BATS_FILE_TMPDIR/20201214
    bash "$SPX_ROOT/share/night/page.sh" "$night" here.html
    [ ! -e "$night/night.html" ]
    [ "$(ls)" = here.html ]
    h5table --csv -t /rvfit/table -c RVS_WARN "$night/rv-100.h5" | awk 'NR > 1 { n++; g += $1 == 0 } END { print g " of " n }' >good
    grep -q "<b>2</b> exposures<li><b>3</b> frames of 2 cameras<li><b>$(cat good)</b> stars" here.html
    grep -q '<b>2</b> products failed' here.html
    # exposure 12: the signal-to-noise ratio of camera r, which the other exposure has, too
    specplot -k night --table "$night"/cframe-r0-*.h5 | sed -n 2p | cut -f 6 >snr
    grep -q "^<tr><td>00000012<td>.*$(printf '<td>%.1f' "$(cat snr)").*<td>1.00" here.html
    # failures: what others follow from first, with its message and command; no markup of theirs
    grep -q '<summary>psf-b0-00000013.h5</summary>' here.html
    grep -q 'specx-shift &lt;image&gt; &amp; more' here.html
    run ! grep -q '<script' here.html
    grep -q '<li>sframe-b0-00000013.h5 without redux/psf-b0-00000013.h5' here.html
    # nothing from elsewhere
    run ! grep -Eo '(src|href)="(http|//|[a-z]*\.[a-z])' here.html
    # an empty folder has a page, too
    mkdir empty
    bash "$SPX_ROOT/share/night/page.sh" empty
    grep -q '<b>0</b> exposures' empty/night.html
}

@test "of many groups the page draws those with warnings and with most stars, and says how to draw another" {
    # group N has N stars; of 2, 5 and 9 every second one has a warning, and of 20 one
    mkdir fake folder
    cat >fake/h5table <<'END'
#!/usr/bin/env bash
n=${!#}
n=${n#rv-} n=${n%.h5}
echo VRAD_ERR,RVS_WARN
case $n in 2 | 5 | 9) every=2 ;; 20) every=20 ;; *) every=1000 ;; esac
for ((i = 1; i <= n; i++)); do echo "0.5,$((i % every == 0 ? 8 : 0))"; done
END
    printf '#!/usr/bin/env bash\necho "$*" >>%q\n[ -z "${3:-}" ] || echo picture >"$3"\n' "$PWD/calls" >fake/specplot
    true >fake/gnuplot
    chmod +x fake/*
    touch folder/rv-{1..20}.h5
    drawn() {
        PATH=$PWD/fake:$PATH PICTURES=$1 bash "$SPX_ROOT/share/night/page.sh" folder
        sed -n 's/.*<figcaption>Stars of rv-\([0-9]*\).h5:.*/\1/p' folder/night.html | sort -n | xargs
    }
    true >calls
    [ "$(drawn 5)" = '5 9 18 19 20' ]
    [ "$(grep -c 'k stars' calls)" -eq 5 ]
    grep -q 'Stars of 5 of 20 groups are drawn' folder/night.html
    grep -q '^specplot -k stars -o stars.svg rv-9.h5$' folder/night.html
    # all are in the table
    [ "$(grep -c '^<tr><td>rv-' folder/night.html)" -eq 20 ]
    [ "$(drawn 0)" = '' ]
    [ "$(drawn 1)" = 20 ]
    [ "$(drawn 20)" = "$(echo {1..20})" ]
    run ! grep -q 'groups are drawn' folder/night.html
    run drawn many
    [[ $output == *"PICTURES=many: give a number"* ]]
}

@test "the page of a night in a browser, 1280 and 400 pixels wide: every picture is there and not blank, links lead somewhere" {
    need_program gnuplot
    local browser b
    for b in chromium chromium-browser google-chrome; do
        [ -n "${browser:-}" ] || ! command -v "$b" >/dev/null || browser=$b
    done
    [ -n "${browser:-}" ] || skip "no chromium or google-chrome is installed"
    bash "$SPX_ROOT/share/night/page.sh" "$BATS_FILE_TMPDIR/20201214" night.html
    # The page looks at itself, in two frames, and tells the page around them.
    cat night.html - >look.html <<'END'
<script>
addEventListener("load", () => {
    const bad = [], texts = getComputedStyle(document.body);
    document.querySelectorAll("details").forEach(d => d.open = true);
    for (const i of document.images) {
        const c = document.createElement("canvas"), seen = new Set();
        c.width = c.height = 200;
        const pen = c.getContext("2d");
        if (!i.complete || !i.naturalWidth) { bad.push("not loaded: " + i.alt); continue; }
        pen.drawImage(i, 0, 0, 200, 200);
        const rgba = pen.getImageData(0, 0, 200, 200).data;
        for (let k = 0; k < rgba.length; k += 4) seen.add(rgba[k] << 16 | rgba[k + 1] << 8 | rgba[k + 2]);
        if (seen.size < 20) bad.push("blank: " + i.alt);
        /* letters of 14 pixels */
        if (14 * i.clientWidth / i.naturalWidth < 9) bad.push("too small: " + i.alt);
    }
    for (const a of document.querySelectorAll("a[href]"))
        if (!document.getElementById(a.getAttribute("href").slice(1))) bad.push("link: " + a.href);
    if (document.documentElement.scrollWidth > innerWidth) bad.push("wider than " + innerWidth);
    if (parseFloat(texts.fontSize) < 14) bad.push("small text");
    if (!document.querySelector("th") || document.title != "Night 20201214") bad.push("not the page");
    parent.postMessage(innerWidth + ": " + document.images.length + " pictures, " + bad.length + " bad " + bad.join("; "), "*");
});
</script>
END
    cat >around.html <<'END'
<!DOCTYPE html><pre id="out"></pre>
<script>addEventListener("message", m => { document.getElementById("out").textContent += "said " + m.data + "\n"; });</script>
<iframe src="look.html" width="1280" height="900" style="border:0"></iframe>
<iframe src="look.html" width="400" height="800" style="border:0"></iframe>
END
    HOME=$PWD "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --enable-logging=stderr \
        --virtual-time-budget=20000 --dump-dom "file://$PWD/around.html" >dom 2>messages
    grep -o 'said [0-9].*' dom | sort | diff - <(printf 'said 1280: %d pictures, 0 bad \nsaid 400: %d pictures, 0 bad \n' 7 7)
    run ! grep CONSOLE messages
}
