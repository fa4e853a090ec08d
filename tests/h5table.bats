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
