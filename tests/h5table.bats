# h5table: columns, units, formats, refusals. And TEMPLATE, from which new programs start.

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --truth truth.h5 -o image.h5
    specx-extract -q image.h5 -o frame.h5
}

@test "h5table prints the columns asked for, aligned" {
    run h5table -c TARGETID,OBJTYPE,VRAD "$BATS_FILE_TMPDIR/truth.h5"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 5 ]
    [[ ${lines[0]} =~ ^\ *TARGETID\ +OBJTYPE\ +VRAD$ ]]
    # numbers end where the next column begins, in every line
    [ "$(printf '%s\n' "${lines[@]}" | awk '{ print length }' | sort -u | wc -l)" -eq 1 ]
    [ "$(printf '%s\n' "${lines[@]}" | grep -c SKY)" -eq 1 ]
}

@test "h5table shows units on demand" {
    run h5table -u -c VRAD,TEFF "$BATS_FILE_TMPDIR/truth.h5"
    [ "$status" -eq 0 ]
    [[ ${lines[1]} =~ ^\ *km/s\ +K$ ]]
}

@test "h5table --csv has every digit, and every row as many fields as names" {
    h5table --csv "$BATS_FILE_TMPDIR/truth.h5" >out.csv
    [ "$(awk -F, '{ print NF }' out.csv | sort -u | wc -l)" -eq 1 ]
    [ "$(wc -l <out.csv)" -eq 5 ]
    # 17 digits of a double that is no short fraction
    h5table --csv -c VRAD "$BATS_FILE_TMPDIR/truth.h5" | grep -qE '^-?[0-9]+\.[0-9]{12,}'
}

@test "h5table takes the fibermap where there are no results, and reads a pipe" {
    h5table -t /fibermap "$BATS_FILE_TMPDIR/frame.h5" >a
    h5table -t /fibermap - <"$BATS_FILE_TMPDIR/frame.h5" >b
    # a pipe on purpose: it has no random access
    # shellcheck disable=SC2002
    cat "$BATS_FILE_TMPDIR/frame.h5" | h5table -t /fibermap >c
    cmp a b
    cmp a c
}

@test "h5table rounds for people, by the column, and never with --csv" {
    local f=$BATS_FILE_TMPDIR/truth.h5
    # four decimals, aligned at the point
    [ "$(h5table -c VRAD "$f" | tail -n +2 | grep -cE '^ *-?[0-9]+\.[0-9]{4}$')" -eq 4 ]
    paste <(h5table -c VRAD "$f" | tail -n +2) <(h5table --csv -c VRAD "$f" | tail -n +2) |
        awk '($1 - $2)^2 > 0.00005001^2 || length($1) >= length($2) && $2 != 0 { exit 1 }'
    # positions keep theirs
    h5table -t /fibermap -c TARGET_RA "$BATS_FILE_TMPDIR/frame.h5" | grep -qE '\.[0-9]{6,}$'
}

@test "h5table --rows prints some rows" {
    local f=$BATS_FILE_TMPDIR/truth.h5
    diff <(h5table --csv "$f" | sed -n '1p;3,4p') <(h5table --csv --rows 1:3 "$f")
    fails_with 2 '*--rows*0:4*' h5table -r 2:9 "$f"
}

@test "h5table --spectrum prints one spectrum, by row or target, all arms" {
    local f=$BATS_FILE_TMPDIR/frame.h5 id
    h5table -s 2 "$f" >text
    [ "$(head -n 1 text | tr -s ' ')" = 'wavelength flux ivar mask' ]
    sed -n 3p text | grep -qE '^ *[0-9]+\.8 '
    h5table --csv -s 2 "$f" >csv
    [ "$(head -n 1 csv)" = wavelength,flux,ivar,mask ]
    # the values are those of the file
    for name in flux ivar mask; do
        h5dump -y -w 1 -m %.9g -o values -d /frame/$name -s 2,0 -c "1,$(($(wc -l <csv) - 1))" "$f" >/dev/null
        diff <(tr -d ', ' <values | grep .) \
            <(tail -n +2 csv | cut -d, "-f$(head -n 1 csv | tr , '\n' | grep -n $name | cut -d: -f1)")
    done
    id=$(h5table --csv -t /fibermap -c TARGETID "$f" | sed -n 4p)
    diff csv <(h5table --csv --targetid "$id" "$f")
    h5table -u -s 2 "$f" | sed -n 2p | grep -q 'Angstrom *electron/Angstrom'
    # arms one below the other; the model of a fit
    specx-sim -q --arm b --fibers 4 --sky-fibers 1 --wavelength 5000,5040 | cat >b.h5
    specx-extract -q b.h5 -o b-frame.h5
    h5merge -q b-frame.h5 "$f" -o both.h5
    h5table --csv -s 2 both.h5 >both.csv
    [ "$(head -n 1 both.csv)" = arm,wavelength,flux,ivar,mask ]
    diff <(grep ^r, both.csv | cut -d, -f2-) <(tail -n +2 csv)
    [ "$(cut -d, -f1 both.csv | uniq | tr '\n' ' ')" = 'arm b r ' ]
    fails_with 2 '*--spectrum*frame.h5 has the spectra 0 to 3, not 4' h5table -s 4 "$f"
    fails_with 3 '*no spectrum has TARGETID 1' h5table --targetid 1 "$f"
    fails_with 3 '*truth.h5: holds no spectra*' h5table -s 0 "$BATS_FILE_TMPDIR/truth.h5"
    fails_with 2 '*--columns goes with a table only*' h5table -s 0 -c flux "$f"
}

@test "h5table --provenance tells how a product was made" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    h5table --provenance "$f" >text
    grep -qE '^1\. specx-sim [0-9]' text
    grep -qE '^2\. specx-extract [0-9]' text
    grep -qx '    command  specx-extract -q image.h5 -o frame.h5' text
    grep -q '^    inputs   image.h5 (' text
    grep -qE ' bundle-size=25( |$)' text
    # command lines stay whole, to be copied
    grep -v '^    command' text | awk 'length > 79 { exit 1 }'
    fails_with 2 '*exclude each other' h5table -p -s 1 "$f"
    fails_with 2 '*--csv*' h5table -p --csv "$f"
    h5copy -i "$f" -o bare.h5 -s /fibermap -d /fibermap
    fails_with 3 '*bare.h5:/provenance: is missing*' h5table -p bare.h5
    cp "$f" damaged.h5
    h5edit damaged.h5 shape /provenance/001 3
    run -3 --separate-stderr h5table -p damaged.h5
    # shellcheck disable=SC2154
    [[ $stderr == *'damaged.h5:/provenance/001: is not fixed-length text'* ]]
    run -3 h5table --json -p damaged.h5
}

# check_json FILE STATEMENTS: Python statements about j, the JSON of a file.
check_json() {
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]), parse_constant=lambda c: sys.exit("not JSON: " + c))
'"$2" "$1"
}

@test "h5table --json has the values of --csv, units, and null for what is not finite" {
    local f=$BATS_FILE_TMPDIR/truth.h5
    h5table --csv "$f" >csv
    h5table --json "$f" >json
    check_json json '
import csv
rows = list(csv.DictReader(open("csv")))
assert j["table"] == "/truth/table" and j["units"]["VRAD"] == "km/s", j["units"]
assert len(rows) == len(j["rows"]) == 4
for a, b in zip(rows, j["rows"]):
    assert list(a) == list(b)
    for k in a:
        assert a[k] == b[k] if isinstance(b[k], str) else float(a[k]) == b[k], (k, a[k], b[k])
'
    h5table --json --rows 1:2 -c VRAD "$f" >json
    check_json json 'assert len(j["rows"]) == 1 and list(j["rows"][0]) == ["VRAD"]'
    cp "$f" odd.h5
    h5edit odd.h5 column /truth/table ODD 1,nan,-inf,2.5
    h5table --no-verify --json -c ODD odd.h5 >json
    check_json json 'assert [r["ODD"] for r in j["rows"]] == [1, None, None, 2.5]'
    h5table --json -s 2 "$BATS_FILE_TMPDIR/frame.h5" >json
    h5table --csv -s 2 "$BATS_FILE_TMPDIR/frame.h5" | sed -n 4p >line
    check_json json '
line = [float(x) for x in open("line").read().split(",")]
assert j["spectrum"] == 2 and j["units"]["flux"] == "electron/Angstrom"
assert [j["rows"][2][k] for k in ("wavelength", "flux", "ivar", "mask")] == line'
    fails_with 2 '*--csv: not with --json*' h5table --json --csv "$f"
    fails_with 2 '*--units: not with --json*' h5table --json -u "$f"
}

@test "no name of a file makes up a line of the provenance" {
    local line=$'x\nversion: 9\noption: seed=7\n\e[2J'
    specx-sim -q --fibers 1 --wavelength 6400,6410 --truth "$line" -o "$line.h5"
    h5merge -q "$BATS_FILE_TMPDIR/frame.h5" -o frame.h5
    mv frame.h5 "$line"
    h5merge -q "$line" -o merged.h5
    h5table --provenance "$line.h5" >text
    grep -F 'truth=x?version: 9?option: seed=7??[2J' text
    [ "$(grep -c 'version\|seed=7' text)" -eq 2 ] # the command and --truth
    run ! grep -q $'\e' text
    h5dump -d "/provenance/$(h5ls merged.h5/provenance | awk 'END { print $1 }')" merged.h5 >dump
    [ "$(grep -c '"input:' dump)" -eq 1 ]
}

@test "h5table --json --provenance has the fields of the records" {
    h5table --json -p "$BATS_FILE_TMPDIR/frame.h5" >json
    check_json json '
assert [r["program"] for r in j] == ["specx-sim", "specx-extract"]
assert j[1]["command_line"] == "specx-extract -q image.h5 -o frame.h5"
assert "bundle-size=25" in j[1]["option"] and len(j[1]["input"]) == 1'
}

@test "h5table --list names the tables, the usual one first" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    h5table --list "$f" >list
    [ "$(tr -s ' ' <list | cut -d ' ' -f 1,2)" = $'TABLE ROWS\n/scores 4\n/fibermap 4' ]
    [ "$(sed -n 3p list | tr -s ' ' | cut -d ' ' -f 3 | tr , '\n')" = \
        "$(h5table --csv -t /fibermap "$f" | head -n 1 | tr , '\n')" ]
    h5table --list --json "$f" >json
    check_json json 'assert [(t["table"], t["nrow"]) for t in j] == [("/scores", 4), ("/fibermap", 4)] and "FIBER" in j[1]["columns"]'
    # links: a circle of groups ends, and what leads out of the file is not followed
    h5copy -i "$f" -o links.h5 -s /fibermap -d /fibermap
    python3 -c 'import h5py
f = h5py.File("links.h5", "a")
g = f.create_group("g")
g["circle"] = g
f["out"] = h5py.ExternalLink("truth.h5", "/truth/table")
f["values"] = [1.0, 2.0]' || skip "no h5py"
    h5table --no-verify --list links.h5 >list
    [ "$(wc -l <list)" -eq 2 ]
    fails_with 2 '*--csv goes with a table only, not with --list' h5table --list --csv "$f"
    fails_with 2 '*exclude each other' h5table --list -p "$f"
}

@test "h5table refuses what is not there" {
    fails_with 3 '*truth.h5:*NOSUCH*' h5table -c NOSUCH "$BATS_FILE_TMPDIR/truth.h5"
    fails_with 3 '*truth.h5:/rvfit/table*' h5table -t /rvfit/table "$BATS_FILE_TMPDIR/truth.h5"
    fails_with 2 '*--columns*' h5table -c VRAD,,TEFF "$BATS_FILE_TMPDIR/truth.h5"
    fails_with 2 '*one input*' h5table "$BATS_FILE_TMPDIR/truth.h5" "$BATS_FILE_TMPDIR/frame.h5"
    fails_with 3 '*empty*' h5table - </dev/null
    fails_with 3 '*' h5table -t /truth/flux "$BATS_FILE_TMPDIR/truth.h5"
}

@test "h5table notices a full disk" {
    [ -e /dev/full ] || skip "no /dev/full"
    run bash -c "h5table '$BATS_FILE_TMPDIR/truth.h5' >/dev/full"
    [ "$status" -eq 4 ]
}

@test "TEMPLATE takes rows of a frame and writes a valid product" {
    TEMPLATE --rows 1:3 "$BATS_FILE_TMPDIR/frame.h5" -o two.h5
    h5check two.h5
    [ "$(h5table --csv -t /fibermap -c FIBER two.h5 | tr '\n' ' ')" = "FIBER 1 2 " ]
    fails_with 2 '*--rows*' TEMPLATE --rows 3:9 "$BATS_FILE_TMPDIR/frame.h5" -o out.h5
}
