# share/reduce.mk with programs that take no time: names of files, groups, failures, devices. night.bats reduces a night.

load common
load fake-night

@test "names of files by pattern; groups by tile and exposure; what is made when" {
    fake_programs
    empty_night b3 r3 b4
    quick -j4 >log
    made_by >made
    [ "$(grep -c ^frame- made)" -eq 15 ]
    grep -qx 'flat-b4.h5' made
    [ "$(grep ^coadd- made | xargs)" = 'coadd-50.h5 coadd-51.h5' ]
    [ "$(grep ^spectra- made | xargs)" = "$(echo spectra-{3,4}-00{08,09,10,11}.h5)" ]
    [ "$(uniq -d made)" = '' ]
    quick GROUP=exposure >log
    [ "$(made_by | grep ^rv- | xargs)" = 'rv-0008.h5 rv-0009.h5 rv-0010.h5 rv-0011.h5 rv-50.h5 rv-51.h5' ]
    # an exposure more, and a flat that changed
    local c
    for c in b3 r3 b4; do cp in/${c}_n1_0009.img in/${c}_n1_0012.img; done
    echo >>in/r3_n1_0007.img
    true >calls
    quick >log
    [ "$(made_by | grep -e b4 | xargs)" = 'cframe-b4-0012.h5 frame-b4-0012.h5 psf-b4-0012.h5 sframe-b4-0012.h5' ]
    [ "$(made_by | grep -e ^frame -e ^flat | xargs)" = 'flat-r3.h5 frame-b3-0012.h5 frame-b4-0012.h5 frame-r3-0007.h5 frame-r3-0012.h5' ]
    [ "$(made_by | grep -e ^sframe-b3 -e ^standards-4 -e ^coadd | xargs)" = 'coadd-50.h5 coadd-51.h5 sframe-b3-0012.h5 standards-4-0012.h5' ]
}

@test "a product that was removed is made, and what depends on it, by one make" {
    fake_programs
    empty_night b1
    quick -j4 >log
    true >calls
    rm out/rv-50.h5 out/sframe-b1-0009.h5
    quick -j4 >log
    [ "$(made_by | xargs)" = "$(echo cframe-b1-0009.h5 coadd-51.h5 rv-5{0,1}.h5 rvtab-5{0,1}.fits sframe-b1-0009.h5 spectra-1-0009.h5 standards-1-0009.h5)" ]
    true >calls
    quick -j4 >log
    [ ! -s calls ]
}

@test "a night that cannot be: no images, no templates, another group" {
    fake_programs
    run quick
    [ "$status" -eq 2 ]
    [[ $output == *"no images in/CAM_NIGHT_EXPID.img of night n1"* ]]
    run quick PSFS=psf
    [[ $output == *"PSFS=psf needs CAM"* ]]
    empty_night b1
    run quick GROUP=moon
    [[ $output == *"a group is tile or exposure"* ]]
    rm continuum.h5
    run quick
    [ "$status" -eq 2 ]
    [[ $output == *"continuum.h5 is not there"* ]]
    run make -f "$SPX_ROOT/share/reduce.mk"
    [[ $output == *"Which night?"* ]]
}

@test "devices are shared, and none takes two jobs" {
    fake_programs
    empty_night b1 r1 z1
    quick -j8 DEVICES='cuda:0 cuda:1' >log
    quick status | grep '^frame  *15  *0  *0$'
    awk '$2 ~ /^cuda/ { n[$2] += $1 == "begin" ? 1 : -1; jobs[$2] += $1 == "begin"
                if (n[$2] > 1) { print "two jobs: " $0; bad = 1 } }
        n["cuda:0"] + n["cuda:1"] == 2 { both = 1 }
        END { exit bad || !both || jobs["cuda:0"] < 5 || jobs["cuda:1"] < 5 }' calls
}

@test "failures of the machine are tried again, those of the input are not" {
    fake_programs
    empty_night b1 r1
    printf '%s\n' 'frame-b1-0008.h5 137' 'sframe-r1-0009.h5 3' 'rv-50.h5 1' >bad
    run quick -j4
    [ "$status" -eq 2 ]
    [ "$(records out | xargs)" = 'cframe-b1-0008.h5 cframe-r1-0009.h5 frame-b1-0008.h5 rv-50.h5 rvtab-50.fits sframe-b1-0008.h5 sframe-r1-0009.h5' ]
    true >calls
    true >bad
    run quick -j4
    [ "$status" -eq 2 ]
    [ "$(made_by | xargs)" = 'cframe-b1-0008.h5 cframe-r1-0008.h5 coadd-50.h5 frame-b1-0008.h5 rv-50.h5 rvtab-50.fits sframe-b1-0008.h5 spectra-1-0008.h5 standards-1-0008.h5' ]
    [ "$(records out | xargs)" = 'cframe-r1-0009.h5 sframe-r1-0009.h5' ]
    # asked for
    quick retry
    quick -j4 >log
    run ! records out
    quick status | grep 'sframe  *8  *0  *0$'
}

@test "the page comes last, of failures too; it is made without gnuplot, and PAGE= leaves it out" {
    fake_programs
    empty_night b1
    quick -j4 >log
    [ ! -e out/night.html ]
    run ! grep -q night.html log
    # all programs but gnuplot; the first of a name stays
    local folders d
    IFS=: read -ra folders <<<"$PATH"
    mkdir plain
    for d in "${folders[@]}"; do ln -s "$d"/* plain 2>/dev/null || true; done
    rm -f plain/gnuplot
    PATH=$PWD/plain night -j4 >log
    grep -qx 'night.html  *1  *0  *0' log
    grep -q 'without pictures: gnuplot is not installed' out/night.html out/log/night.html.log
    # a product that fails is on it
    echo 'rv-50.h5 3' >bad
    rm out/rv-50.h5
    run night -j4
    [ "$status" -eq 2 ]
    [ "$(records out | xargs)" = 'rv-50.h5 rvtab-50.fits' ]
    grep -q '<summary>rv-50.h5</summary>' out/night.html
    grep -q 'rvtab-50.fits without out/rv-50.h5' out/night.html
    # another command; one that fails does it for its own reason, and nothing else fails
    rm out/night.html
    night -j4 PAGE='ls out/rv-51.h5 > $o' >log || true
    grep -qx out/rv-51.h5 out/night.html
    rm out/night.html
    run night PAGE='echo no ink >&2; false'
    [ "$status" -eq 2 ]
    grep -qx 'because: ' out/night.html.failed
    grep -q 'no ink' out/night.html.failed
    [ ! -e out/night.html ]
    [ "$(records out | xargs)" = 'night.html rv-50.h5 rvtab-50.fits' ]
    # which PAGE= takes no notice of
    true >bad
    quick retry
    quick -j4 >log
    [ ! -e out/night.html ]
}
