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
    # traces and spectra of an exposure share its image
    [ "$(grep -c 'in/r3_n1_0009.img' converted)" -eq 1 ]
    [ "$(sort converted | uniq -d)" = '' ]
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

@test "cameras that are called otherwise than DESI's: arms of several letters, numbers of several digits" {
    local arms=(ARMS='blue HR' 'BINS_blue=3700,5200,1' 'BINS_HR=6200,6400,0.1')
    fake_programs
    empty_night blue12 HR12 HR3
    quick "${arms[@]}" -j4 >log
    made_by >made
    [ "$(grep ^spectra- made | xargs)" = "$(echo spectra-{12,3}-00{08,09,10,11}.h5)" ]
    [ "$(grep -c '^psf-HR12' made)" -eq 5 ]
    quick "${arms[@]}" OUT=new -n >plan
    grep -q 'h5merge .* new/spectra-12-0008.h5 .*new/cframe-blue12-0008.h5 new/cframe-HR12-0008.h5' plan
    grep -q 'specx-extract .* -w 6200,6400,0.1 .*new/frame-HR3-0009.h5' plan
    grep -q 'specx-shift .* --lines sky .*new/psf-blue12-0009.h5' plan
    # b is the beginning of blue
    run quick ARMS='b r z'
    [ "$status" -eq 2 ] && [[ $output == *'HR12 HR3 blue12 are not of the arms b r z: set ARMS'* ]]
    run quick ARMS='blue HR'
    [ "$status" -eq 2 ] && [[ $output == *'BINS_HR is not set'* ]]
    run quick ARMS='blue HR b'
    [ "$status" -eq 2 ] && [[ $output == *'b is the beginning of another arm'* ]]
    # a camera without a number is none
    rm -r out new in
    empty_night blue
    run quick "${arms[@]}"
    [ "$status" -eq 2 ] && [[ $output == *'no images'*'letters and a number'* ]]
}

@test "groups by petal of a tile: one process for those of a batch, in whose job they are fitted; what is made when" {
    fake_programs
    empty_night b1 b2
    rm in/*_n1_0008.img in/*_n1_0011.img
    quick GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' -j4 >log
    [ "$(made_by | grep -e ^rv -e ^coadd | xargs)" = 'coadd-1-50.h5 coadd-1-51.h5 coadd-2-50.h5 coadd-2-51.h5 rv-1-50.h5 rv-1-51.h5 rv-2-50.h5 rv-2-51.h5 rvtab-1-50.fits rvtab-1-51.fits rvtab-2-50.fits rvtab-2-51.fits' ]
    [ "$(grep -c '^begin cuda:0 out/rv-.* 4$' calls)" -eq 4 ]
    [ "$(grep -c '^begin cpu out/coadd-.* 1$' calls)" -eq 4 ]
    grep -q '^rv  *4 ' log
    [ -z "$(ls -A out/lock)" ]
    # of a tile that has another exposure, which is no longer one of a batch
    local c
    for c in b1 b2; do cp in/${c}_n1_0010.img in/${c}_n1_0012.img; done
    true >calls
    quick GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' -j4 >log
    [ "$(made_by | grep -e ^rv | xargs)" = 'rv-1-50.h5 rv-2-50.h5 rvtab-1-50.fits rvtab-2-50.fits' ]
    [ "$(make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out GROUP=petal parts | grep ^group-2-50: | xargs)" = \
        'group-2-50: parts/petal-2-0010 parts/petal-2-0012' ]
    # one that is removed is made alone
    rm out/rv-2-51.h5
    true >calls
    quick GROUP=petal PART=group-2-51
    [ "$(made_by | xargs)" = 'rv-2-51.h5 rvtab-2-51.fits' ]
    # with one place: no program waits on it for what another one would make there
    rm -r out
    echo 'sframe-b1-0009.h5 3' >bad
    run timeout 100 make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out PAGE= GROUP=petal BATCH=10 DEVICES=cuda:0 -j4
    [ "$status" -eq 2 ]
    [ "$(records out | grep -c sframe)" -eq 1 ]
    [ -e out/rv-2-51.h5 ]
}

@test "a product that a program has failed to make is made again, though all places have programs that wait for it" {
    local places
    fake_programs
    empty_night b1 b2
    rm in/*_n1_0008.img in/*_n1_0011.img
    echo 'sframe-b2-0010.h5 3' >bad
    for places in 'cuda:0' 'cuda:0 cuda:0' 'cuda:0 cuda:0 cuda:0'; do
        run timeout 60 make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out PAGE= GROUP=petal BATCH=10 DEVICES="$places" -j4
        [ "$status" -eq 2 ]
        [ "$(records out | grep -c ^sframe)" -eq 1 ]
        [ -e out/rv-1-50.h5 ]
        rm -r out
    done
    # two jobs, each of which fails
    echo 'sframe-b1-0009.h5 3' >>bad
    run timeout 60 make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out PAGE= GROUP=petal BATCH=2 DEVICES='cuda:0 cuda:0 cuda:0' -j4
    [ "$status" -eq 2 ]
    [ "$(records out | grep -c ^sframe)" -eq 2 ]
    [ -e out/rv-1-50.h5 ]
}

@test "a petal that fails keeps no other waiting, though what it lacks may be made yet" {
    fake_programs
    empty_night b{1,2,3,4,5,6}
    rm in/*_n1_0008.img in/*_n1_0011.img
    echo 'standards-1-0009.h5 3' >bad
    echo cframe-b6-0010.h5 >hold
    quick GROUP=petal BATCH=12 DEVICES="$(printf 'cuda:0 %.0s' {1..9})" -j4 >log 2>&1 &
    wait_for $! eval '[ -d held-cframe-b6-0010.h5 ] && [ -e out/rv-5-50.h5 ]'
    [ ! -e out/cframe-b6-0010.h5 ]
    touch go
    status=0
    wait $! || status=$?
    [ "$status" -eq 2 ]
    [ "$(records out | grep -v -e b1-0009 -e 1-51 | xargs)" = standards-1-0009.h5 ]
    [ "$(made_by | grep -c ^rv-)" -eq 12 ]
}

@test "a petal that comes late, but comes, is fitted with the others" {
    fake_programs
    empty_night b{1,2,3,4,5,6}
    rm in/*_n1_0008.img in/*_n1_0011.img
    echo spectra-1-0009.h5 >hold
    quick GROUP=petal BATCH=12 DEVICES="$(printf 'cuda:0 %.0s' {1..9})" -j4 >log 2>&1 &
    # all others are joined, and some rounds of the job have seen it
    wait_for $! eval '[ -d held-spectra-1-0009.h5 ] && [ $(made_by | grep -c ^coadd) -eq 11 ]'
    sleep 1
    touch go
    wait $!
    [ "$(grep -c '^begin cuda:0 out/rv-.* 6$' calls)" -eq 12 ]
}

@test "traces and spectra take a part of a GPU's memory" {
    fake_programs
    empty_night b1
    quick -n DEVICES='cuda:0 cuda:0' >plan
    [ "$(grep -e specx-shift -e specx-extract plan | grep -c -e '--device $DEVICE --max-device-mem 3G ')" -eq "$(grep -c -e specx-shift -e specx-extract plan)" ]
    grep -q 'specx-shift' plan
    [ "$(grep -c max-device-mem plan)" -eq "$(grep -c -e specx-shift -e specx-extract plan)" ]
    run quick -n DEVICES='cuda:0 cuda:0' DEVICE_MEM=500M
    [[ $output == *'max-device-mem 500M'* ]]
    run quick -n DEVICES='cuda:0 cuda:0' DEVICE_MEM=
    [[ $output != *max-device-mem* ]]
    run quick -n DEVICES=cpu
    [[ $output == *'--device $DEVICE'* && $output != *max-device-mem* ]]
}

@test "a queue waits for what is made by commands of their own: skies of one petal, for its spectra" {
    fake_programs
    empty_night b1 r1
    rm in/*_n1_0008.img in/*_n1_001?.img
    quick BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' -j4 >log
    [ "$(grep -c '^begin cuda:0 out/sframe-.* 2$' calls)" -eq 2 ]
    [ "$(made_by | uniq -d)" = '' ]
}

@test "what the files say is no setting, and make simulate-night hands none on" {
    fake_programs
    empty_night b3
    run quick PETALS=1
    [ "$status" -eq 2 ]
    [[ $output == *"PETALS=1: the files say so, and it is no setting"* ]]
    [ ! -e calls ] || [ ! -s calls ]
    mkdir -p share/night
    cp "$SPX_ROOT/share/night/demo.sh" share/night/
    printf '#!/bin/sh\nmkdir -p "$1/redux/x" && touch "$1/redux/x/rv-1.h5"\n' >share/night/simulate.sh
    chmod +x share/night/simulate.sh
    printf 'PETALS := its own\nall:\n\t@echo "petals: $(PETALS)"\n' >share/reduce.mk
    printf 'night:\n\t@share/night/demo.sh out\n' >Makefile
    run make -s night PETALS=7
    [[ $output == *"petals: its own"* ]]
}

# pixels NSIDE: of the directions on standard input, two numbers a line
pixels() {
    awk 'BEGIN { print "names" } { print NR "," $1 "," $2 ",TGT" }' | awk -F, -v nside="$1" -f "$SPX_ROOT/share/night/healpix.awk" | sed 's/ .*//'
}

@test "pixels of HEALPix, nested, of NSIDE 1, 64 and 8192, as healpy 1.20 gives them" {
    cat >known <<'END'
225.034368 -29.357726 10 44224 724570068
322.996968 -6.306518 4 18978 310936882
279.246848 0.521199 7 30359 497412265
81.074588 6.142102 5 23006 376938162
108.059863 82.30743 1 8119 133036626
314.47924 35.825871 3 13285 217668570
1.89551 14.143924 4 19673 322325057
295.642231 77.93752 3 16282 266766714
286.944994 -34.707184 11 48000 786444794
168.456583 -42.810514 9 38292 627380585
109.091674 13.007536 5 22498 368609186
100.23322 -65.799422 9 37543 615109460
0.0 90.0 0 4095 67108863
45.0 -89.9 8 32768 536871104
150.1 2.2 6 27258 446599398
359.999 -0.001 4 17407 285212671
END
    diff <(cut -d ' ' -f 3 known) <(pixels 1 <known)
    diff <(cut -d ' ' -f 4 known) <(pixels 64 <known)
    diff <(cut -d ' ' -f 5 known) <(pixels 8192 <known)
    # sky, and rows without target or direction
    printf '%s\n' names 1,0,0,SKY -1,0,0,TGT 2,,,TGT 3,0,0,BAD 4,45,0.1,TGT >rows
    [ "$(awk -F, -v nside=1 -f "$SPX_ROOT/share/night/healpix.awk" rows)" = '0 4' ]
}

@test "groups by pixel: targets and exposures of each; what is made when a fibermap changes" {
    fake_programs
    empty_night b1 b2
    # Petal 1 of tile 50 has targets in pixels 25 and 26 of NSIDE 64, petal 2 in pixel 26; tile 51 has the same in both.
    mv fake/fits2h5 fake/other
    cat >fake/fits2h5 <<'END'
#!/usr/bin/env bash
case $* in
-q*) echo "$2" ;;
*) exec fake/other "$@" ;;
esac
END
    cat >fake/h5table <<'END'
#!/usr/bin/env bash
read -r image
[ -s "$image" ] || exit 3
echo names
case $image in
*/b1*_00[01][08]*) printf '%s\n' 101,47.4609375,4.7801923,TGT 102,46.0546875,4.7801923,TGT 103,0,0,SKY ;;
*/b2*_00[01][08]*) echo 201,46.0546875,4.7801923,TGT ;;
*) echo 300,225.034368,-29.357726,TGT ;;
esac
END
    chmod +x fake/fits2h5
    quick GROUP=healpix -j4 >log
    sed -n 's/^FROM-//p' out/plan.mk
    [ "$(made_by | grep ^coadd | xargs)" = 'coadd-hpx25.h5 coadd-hpx26.h5 coadd-hpx44224.h5' ]
    [ "$(sed -n 's/^FROM-hpx26 := //p' out/plan.mk)" = '1-0008 2-0008 1-0010 2-0010' ]
    [ "$(sed -n 's/^FROM-hpx25 := //p' out/plan.mk)" = '1-0008 1-0010' ]
    [ "$(xargs <out/inputs/hpx26)" = '102 201' ]
    [ "$(xargs <out/inputs/hpx25)" = 101 ]
    grep -q -- "--targetid-file out/inputs/hpx26.*-o out/rv-hpx26.h5 .*out/spectra-2-0010.h5" log
    true >calls
    quick GROUP=healpix >log
    [ ! -s calls ]
    # a target more, in the image that the list is from
    sed -i 's/101,47/104,47.4609375,4.7801923,TGT 101,47/' fake/h5table
    echo >>in/b1_n1_0008.img
    quick GROUP=healpix -j4 >log
    [ "$(made_by | grep -e ^coadd -e ^rv- | xargs)" = 'coadd-hpx25.h5 coadd-hpx26.h5 rv-hpx25.h5 rv-hpx26.h5' ]
    [ "$(xargs <out/inputs/hpx25)" = '101 104' ]
    quick GROUP=healpix PART=group-hpx44224
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

# threads_of KIND: how many threads its programs had, by the number of outputs, each once
threads_of() { sed -n "s|^$1-[^ ]* ||p" threads | sort -u | xargs; }

@test "the processors are divided among the jobs that there are, and no more than can run" {
    fake_programs
    empty_night b3
    local p
    for p in fake/*; do
        mv "$p" "$p.real"
        printf '#!/bin/bash\n[[ $* != *" -o "* ]] || echo "${product##*/} $OMP_NUM_THREADS" >>threads\nexec "$0.real" "$@"\n' >"$p"
        chmod +x "$p"
    done
    printf '#!/bin/sh\necho 32\n' >fake/nproc
    chmod +x fake/nproc
    unset OMP_NUM_THREADS
    # one camera, four exposures of two tiles
    quick -j16 BATCH=1 >log
    [ "$(threads_of rv)" = 16 ]     # 2
    [ "$(threads_of coadd)" = 16 ]
    [ "$(threads_of spectra)" = 8 ] # 4
    [ "$(threads_of flat)" = 32 ]   # 1
    [ "$(threads_of sframe)" = 8 ]
    rm -r out threads
    # four, three at a time: the last one is alone, and has all
    quick -j3 BATCH=1 >log
    [ "$(sed -n 's/^\(psf\|frame\)-b3-00\(..\).h5 /\1 \2 /p' threads | sort -u | xargs)" = \
        'frame 07 10 frame 08 10 frame 09 10 frame 10 10 frame 11 32 psf 08 10 psf 09 10 psf 10 10 psf 11 32' ]
    rm -r out threads
    quick -j16 BATCH=3 DEVICES='cuda:0 cuda:1 cuda:2' >log
    [ "$(threads_of frame)" = 10 ]  # three arms may be at work
    [ "$(threads_of spectra)" = 10 ]
    rm -r out threads
    true >calls
    quick -j16 BATCH=1 DEVICES='cuda:0 cuda:1' >log
    [ "$(threads_of sframe)" = 16 ]
    grep -q '^begin cpu out/coadd-50.h5' calls
    grep -q '^begin cuda:[01] out/cframe-b3-0008.h5' calls
    grep -q '^begin cuda:[01] out/frame-b3-0008.h5' calls
    rm -r out threads
    quick -j16 BATCH=1 DEVICES='cuda:0 cuda:1' ON_DEVICE='frame sframe' SKY='--device cpu' >log
    [ "$(threads_of sframe)" = 16 ] # two devices
    rm -r out threads
    # without devices none is waited for, and fluxes are made on processors
    quick -j2 BATCH=2 -n >plan
    grep -q 'specx-flux --reproducible --device cpu' plan
    quick -j2 BATCH=1 ON_DEVICE=sframe SKY='--device cpu' >log
    [ "$(threads_of sframe)" = 16 ]
}

@test "threads of a job wait asleep, and ask a GPU for two queues, unless the environment says otherwise" {
    fake_programs
    empty_night b3
    local p
    for p in fake/*; do
        mv "$p" "$p.real"
        printf '#!/bin/bash\n[[ $* != *" -o "* ]] || echo "$OMP_WAIT_POLICY $CUDA_DEVICE_MAX_CONNECTIONS" >>environment\nexec "$0.real" "$@"\n' >"$p"
        chmod +x "$p"
    done
    unset OMP_WAIT_POLICY CUDA_DEVICE_MAX_CONNECTIONS
    quick -j4 BATCH=3 DEVICES='cuda:0 cuda:0 cuda:0' >log
    [ "$(sort -u environment)" = 'passive 2' ]
    rm -r out environment
    OMP_WAIT_POLICY=active CUDA_DEVICE_MAX_CONNECTIONS=8 quick -j4 BATCH=3 DEVICES='cuda:0 cuda:0 cuda:0' >log
    [ "$(sort -u environment)" = 'active 8' ]
}

@test "settings come from the command line and night.mk, not from the environment, as tcsh's GROUP" {
    fake_programs
    empty_night b3
    GROUP=staff FLUX=--force run quick -n
    [ "$status" -eq 0 ]
    [[ $output != *--force* ]]
    GROUP=staff quick -j4 >log
    [ -e out/coadd-50.h5 ]
    GROUP=staff run make -e -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out
    [ "$status" -eq 2 ]
    [[ $output == *"GROUP=staff: a group is tile"* ]]
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
    [[ $output == *"a group is tile, petal, exposure or healpix"* ]]
    rm continuum.h5
    run quick
    [ "$status" -eq 2 ]
    [[ $output == *"continuum.h5 is not there"* ]]
    run make -f "$SPX_ROOT/share/reduce.mk"
    [[ $output == *"Which night?"* ]]
}

@test "names that make would take apart are refused before a folder is made; a night's own folder may have blanks" {
    fake_programs
    mkdir 'a night'
    cd 'a night'
    empty_night b1
    local o
    for o in OUT='my redux' NIGHT='2020 1214' OUT=red:ux "OUT=re'd" TEMPLATES='my templates.h5'; do
        run -2 quick "$o"
        [[ $output == *"${o%%=*}=${o#*=}: names of folders and files must not have blanks"* ]]
    done
    [ "$(echo *)" = 'continuum.h5 in templates.h5' ]
    cp in/b1_n1_0008.img 'in/b1_x (2)_0008.img'
    run -2 quick IMAGES='in/CAM_*_EXPID.img'
    [[ $output == *'b1_x (2)_0008.img: names of images and PSFs must not have blanks'* ]]
    rm in/b1_x*
    # what failed is made again by the command that is named, in this folder
    echo 'frame-b1-0008.h5 3' >bad
    run -2 quick
    quick status >status || true
    o=$(sed -n 's/^ *again: //p' status | head -n 1)
    [ "$(eval "$o" && pwd)" = "$PWD" ]
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
    # two machines that share the folder have devices of their own
    rm out/*-0008.h5 out/*-0009.h5
    true >calls
    echo 'frame-b1-0008.h5' >hold
    HOSTNAME=one quick PART=petal-1-0008 DEVICES=cuda:0 >log &
    until grep -q '^end cuda:0 out/frame-b1-0008' calls; do sleep 0.05; done
    HOSTNAME=two quick PART=petal-1-0009 DEVICES=cuda:0 >log2 &
    local i
    for ((i = 0; i < 600; i++)); do [ -e out/spectra-1-0009.h5 ] && break || sleep 0.05; done
    [ -e out/spectra-1-0009.h5 ]
    [ ! -e out/frame-b1-0008.h5 ]
    touch go
    wait
    [ -e out/spectra-1-0008.h5 ]
}

@test "batches take turns on devices, and the first exposures go on meanwhile" {
    fake_programs
    empty_night b1 b2 r1 z1
    quick -j16 BATCH=2 DEVICES=cuda:0 >log
    quick status | grep '^frame  *20  *0  *0$'
    # whole petals, two in a batch: traces are begun when the spectra before the last are there
    local e
    for e in 0010 0011; do
        awk -v now="psf-b2-$e.h5" -v before="$(printf 'spectra-2-%04d.h5' $((10#$e - 2)))" \
            'index($0, "end ") == 1 && index($0, before) { there = 1 } index($0, "begin ") == 1 && index($0, now) { exit !there }' calls
    done
    # a petal goes on while others of its batch are at work
    rm -rf out
    true >calls
    echo 'psf-b2-0008.h5' >hold
    quick -j16 BATCH=8 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' >log &
    until grep -q '^end .*out/spectra-1-0008' calls; do sleep 0.05; done
    [ ! -e out/psf-b2-0008.h5 ]
    touch go
    wait
    quick status | grep '^spectra  *8  *0  *0$'
    # without skies on devices: by arm
    rm -rf out hold go held-*
    true >calls
    quick -j16 BATCH=2 DEVICES=cuda:0 ON_DEVICE='psf frame standards rv' >log
    quick status | grep '^frame  *20  *0  *0$'
    # traces of an exposure are begun when spectra of that before are there: two cameras of b in a batch
    [ "$(sed -n 's/^\(begin\|end\) [^ ]* out.\(psf\|frame\)-b2-\([0-9]*\).h5.*/\1 \2 \3/p' calls | grep -v 0007 | xargs)" = \
        "$(for e in 0008 0009 0010 0011; do echo "begin psf $e end psf $e begin frame $e end frame $e"; done | xargs)" ]
    # and make begins products in the order of exposures
    rm -rf out
    true >calls
    quick BATCH=2 DEVICES=cuda:0 >log
    awk '/^begin .*spectra-1-0008/ { first = 1 } /^begin .*psf-b1-0011/ && first { found = 1 } END { exit !found }' calls
}

@test "images are converted in the order of exposures, half as many at a time as there are processors" {
    fake_programs
    empty_night b1 r1
    true >conversions
    # more images than descriptors by a user's own limit
    (ulimit -Sn 16 && SLURM_CPUS_ON_NODE=2 quick BATCH=4 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' -j1 >log)
    quick status | grep '^sframe  *8  *0  *0$'
    [ "$(sed -n 's/.*in.\([br]1\)_n1_\(00..\).img/\1-\2/p' converted | grep -v 0007 | xargs)" = \
        'b1-0008 r1-0008 b1-0009 r1-0009 b1-0010 r1-0010 b1-0011 r1-0011' ]
    local most='{ n += $1 == "begin" ? 1 : -1; if (n > most) most = n } END { print most }'
    [ "$(awk "$most" conversions)" -eq 1 ]
    rm out/*-00{08,09,10,11}.h5
    true >conversions
    SLURM_CPUS_ON_NODE=6 quick BATCH=4 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' -j1 >log
    [ "$(awk "$most" conversions)" -eq 3 ]
    # two batches, of two exposures each, share the processors
    rm -r out
    true >conversions
    local places='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0'
    SLURM_CPUS_ON_NODE=8 quick BATCH=4 DEVICES="$places $places ${places//:0/:1}" -j16 >log
    quick status | grep '^sframe  *8  *0  *0$'
    [ "$(awk "$most" conversions)" -le 4 ]
}

@test "jobs with queues begin in turn" {
    fake_programs
    empty_night b1 r1
    quick status >log
    exec 7>"out/.turn-$HOSTNAME"
    flock 7
    quick BATCH=4 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' >log 7>&- &
    until [ -e out/flat-r1.h5 ] && [ -h out/lock/psf-b1-0008.h5 ]; do sleep 0.05; done
    # longer than a job takes from its locks to its first program
    sleep 1
    [ ! -e out/psf-b1-0008.h5 ]
    exec 7>&-
    wait
    quick status | grep '^sframe  *8  *0  *0$'
}

@test "jobs that begin together take their turns in the order of exposures, and wait for none that has ended" {
    local n places='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0'
    fake_programs
    empty_night b1 r2
    quick status >log
    # before the first, of a process that lives; and of one that does not
    echo "$$ $(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20)" >"out/.turn-$HOSTNAME-0001.h5-psf-b1-0001.h5"
    echo "$$ 1" >"out/.turn-$HOSTNAME-0002.h5-psf-b1-0002.h5"
    quick -j16 BATCH=2 DEVICES="$places $places $places $places $places" >log 2>&1 &
    for ((n = 0; n < 6; )); do
        sleep 0.05
        n=$(find out -name ".turn-$HOSTNAME-*" | wc -l)
    done
    [ ! -e out/psf-b1-0008.h5 ]
    rm "out/.turn-$HOSTNAME-0001.h5-psf-b1-0001.h5"
    wait
    quick status | grep '^sframe  *8  *0  *0$'
    [ "$(sed -n 's/^begin .*out.psf-b1-\(00..\).h5.*/\1/p' calls | xargs)" = '0008 0009 0010 0011' ]
    [ -z "$(find out -name ".turn-$HOSTNAME-*")" ]
}

@test "on GPUs one process takes several exposures, as many jobs as have places; its images are held only until they are read" {
    local places='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0'
    fake_programs
    empty_night b1 r1
    # of eight images five are held at one time: the others wait for the first of their arms
    printf '%s\n' psf-b1-0008.h5 psf-r1-0008.h5 >hold
    sed -i '1a echo "${0##*/}" >>started' fake/*
    true >conversions
    HELD=5 quick DEVICES="$places" >log &
    until [ -e out/flat-r1.h5 ] && [ "$(grep -c end conversions)" -ge 7 ]; do sleep 0.05; done
    sleep 0.5
    [ "$(grep -c begin conversions)" -eq 7 ]
    # programs begin when those two before them have made something
    [ "$(sort -u started | grep -v fits2h5 | xargs)" = 'specx-extract specx-flat specx-shift' ]
    touch go
    wait
    quick status | grep '^spectra  *4  *0  *0$'
    [ "$(sort converted | uniq -d)" = '' ]
    grep -q '^begin cuda:0 out/frame-r1-0011.h5 4$' calls
    # the first fails, and its program goes on: no image waits for it
    rm -r out hold go held-*
    true >calls
    echo 'psf-b1-0008.h5 3' >bad
    run env HELD=2 timeout 60 make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out PAGE= DEVICES="$places"
    [ "$status" -eq 2 ]
    quick status | grep '^psf  *9  *0  *1$'
    # two GPUs: two jobs, each of two exposures
    rm -r out
    true | tee calls >bad
    quick -j16 DEVICES="$places $places ${places//:0/:1}" >log
    [ "$(sed -n 's/^begin .*out.frame-r1-\(00[01].\).h5 2$/\1/p' calls | sort | xargs)" = '0008 0009 0010 0011' ]
}

@test "a list of products that is longer than an argument may be" {
    local path
    fake_programs
    empty_night b1 b2
    rm in/*_n1_0008.img in/*_n1_0011.img
    printf -v path 'out/%0200d/%0200d/%0200d/%0200d' 1 2 3 4
    quick OUT="$path" GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0' -n >plan
    [ "$(sed -n '/^# .*psf-b1-0009/,/^[^# ]* *h52fits.*rvtab-2-51/p' plan | wc -c)" -gt 131072 ]
    quick OUT="$path" GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0' >log
    quick OUT="$path" GROUP=petal status | grep '^rvtab  *4  *0  *0$'
    [ -z "$(find out -name '.list*')" ]
}

@test "hundreds of petals in one batch: make needs no more memory than for few" {
    local c e
    fake_programs
    empty_night {b,r,z}{0..9}
    for e in 12 13 14 15 16 17 18 19; do
        for c in in/*_n1_0011.img; do ln "$c" "${c/0011/00$e}"; done
    done
    # 30 times this as rules with several targets each
    (ulimit -v 100000 && quick GROUP=petal BATCH=200 DEVICES='cuda:0 cuda:0 cuda:0' -n >plan)
    [ "$(grep -c '^# out/spectra-' plan)" -eq 120 ]
    [ "$(grep -c 'h5merge .*--by cameras' plan)" -eq 120 ]
}

@test "a program makes more products than an argument may name" {
    local path
    fake_programs
    empty_night b{0..9}
    printf -v path '/%0200d' {1..18}
    quick OUT="out$path" ON_DEVICE='psf frame' BATCH=40 DEVICES='cuda:0 cuda:0' -j4 "out$path/frame-b9-0011.h5" >log
    [ "$(grep -c '^begin cuda:0 .*frame-b[0-9]-.* 40$' calls)" -eq 40 ]
}

@test "a make that is killed before its job has read its list leaves none behind" {
    fake_programs
    empty_night b1 b2
    # the shell of the first list ends make, and itself
    cat >killer <<END
#!/usr/bin/env bash
case \${*: -1} in
list*) kill -9 \$PPID \$\$ ;;
esac
exec "$SPX_ROOT/share/night/job.sh" "\$@"
END
    chmod +x killer
    run ! quick GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0' SHELL="$PWD/killer"
    [ -n "$(find out -name '.list*')" ]
    # one of a make that is at work
    touch "out/.list-$HOSTNAME.$$-frame-b1-0008.h5"
    quick GROUP=petal BATCH=10 DEVICES='cuda:0 cuda:0 cuda:0' >log
    [ "$(find out -name '.list*')" = "out/.list-$HOSTNAME.$$-frame-b1-0008.h5" ]
}

@test "frames in batches: what is absent, and nothing else; one that fails harms no other" {
    fake_programs
    empty_night b1 b2 r1
    # products of queues have a line "# PRODUCT: INPUT..." each: traces, spectra and skies
    [ "$(quick BATCH=3 ON_DEVICE='psf frame' -n | grep -o '^# out/[a-z]*' | sort -u | xargs)" = '# out/frame # out/psf' ]
    echo 'ON_DEVICE = psf frame sframe cframe standards rv' >night.mk
    quick BATCH=3 -n >plan
    [ "$(grep -o '^# out/[a-z]*' plan | sort -u | xargs)" = '# out/cframe # out/frame # out/psf # out/sframe # out/spectra # out/standards' ]
    [ "$(grep -c 'specx-extract.* -o out/frame-b2-0010.h5 out/psf-b2-0010.h5 - *$' plan)" -eq 1 ]
    [ ! -s calls ]
    printf '%s\n' 'frame-b1-0008.h5 3' 'sframe-r1-0009.h5 4' >bad
    touch killed # and takes all of its queue with it
    run quick BATCH=3 -j4
    [ "$status" -eq 2 ]
    [ "$(records out | xargs)" = 'cframe-b1-0008.h5 cframe-r1-0009.h5 frame-b1-0008.h5 sframe-b1-0008.h5 sframe-r1-0009.h5' ]
    # psf of three petals, by arm: b1 b2 b1, b2 b1 b2, b1 b2; r1 of 8 and 9, 10, 11
    [ "$(awk '/^begin .* out.psf-..-0/ { n[$4]++ } END { print n[1], n[2], n[3] }' calls)" = '2 4 6' ]
    grep -q '^begin none out/frame-b2-0008.h5' calls
    # the record is of that product alone
    sed -n '/^command:/,/^message:/p' out/frame-b1-0008.h5.failed >again
    [ "$(grep -c fits2h5 again)" -eq 1 ]
    grep -q '^    fits2h5 --reproducible --leave-out READNOISE in/b1_n1_0008.img |$' again
    grep -q '^     *specx-extract .* -o out/frame-b1-0008.h5 out/psf-b1-0008.h5 -$' again
    grep -qx 'because: out/frame-b1-0008.h5' out/sframe-b1-0008.h5.failed
    rm killed
    true | tee calls >bad
    # the failure of a machine is tried again
    run quick BATCH=3 -j4
    [ "$(made_by | xargs)" = 'cframe-b1-0009.h5 cframe-r1-0009.h5 coadd-51.h5 rv-51.h5 rvtab-51.fits sframe-r1-0009.h5 spectra-1-0009.h5 standards-1-0009.h5' ]
    quick retry
    quick BATCH=3 -j4 >log
    run ! records out
    true >calls
    quick BATCH=3 -j4 >log
    [ ! -s calls ]
    # some are removed, one becomes too old
    rm out/sframe-b1-00{08,09}.h5
    echo >>in/r1_n1_0011.img
    quick BATCH=3 -n | grep -o 'h5 specx\|-o out/[a-z]*frame-[^ ]*' | sort >plan
    quick BATCH=3 -j4 >log
    made_by | grep frame | sed 's|^|-o out/|' | diff plan -
    [ "$(made_by | grep frame | xargs)" = 'cframe-b1-0008.h5 cframe-b1-0009.h5 cframe-b1-0011.h5 cframe-r1-0008.h5 cframe-r1-0009.h5 cframe-r1-0011.h5 frame-r1-0011.h5 sframe-b1-0008.h5 sframe-b1-0009.h5 sframe-r1-0011.h5' ]
    grep -q 'out/sframe-b1-0008.h5 2$' calls
    # a part of the night takes its own alone
    rm out/*frame-b1-00*
    true >calls
    quick BATCH=3 PART=petal-1-0009 -j4
    [ "$(made_by | grep frame | xargs)" = 'cframe-b1-0009.h5 cframe-r1-0009.h5 frame-b1-0009.h5 sframe-b1-0009.h5' ]
    # several makes at once make each product once
    rm -r out calls
    for n in 1 2 3; do quick BATCH=$n -j3 >log$n & done
    wait
    [ "$(made_by | uniq -d)" = '' ]
    run ! records out
    [ -z "$(ls -A out/lock)" ]
}

@test "messages of a program that makes many products: each in the log of its product, the others in all" {
    fake_programs
    empty_night b1 b2
    rm in/*_n1_00{08,09,10}.img
    # of an input, by its name in the list and with a dot that is not any character; of none; and the sum, which says nothing
    cat >fake/specx-sky <<'END'
#!/usr/bin/env bash
while IFS=$'\t' read -r flat frame; do
    echo "specx-sky: warning: $frame: of $(basename "$frame")" >&2
    touch "out/s${frame#out/}"
done
echo 'specx-sky: warning: of none: out/frame-b1-0011xh5: as it is' >&2
echo 'specx-sky: 1 of 2 frames failed: see above' >&2
END
    quick BATCH=2 DEVICES='cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0 cuda:0' >log || true
    cat out/log/sframe-b?-0011.h5.log
    [ "$(cat out/log/sframe-b1-0011.h5.log)" = $'specx-sky: warning: sframe-b1-0011.h5: of frame-b1-0011.h5\nspecx-sky: warning: of none: out/frame-b1-0011xh5: as it is' ]
    [ "$(cat out/log/sframe-b2-0011.h5.log)" = $'specx-sky: warning: sframe-b2-0011.h5: of frame-b2-0011.h5\nspecx-sky: warning: of none: out/frame-b1-0011xh5: as it is' ]
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

@test "a failure of the machine is tried again where an input is absent, too" {
    fake_programs
    empty_night b1 r1
    printf '%s\n' 'cframe-r1-0009.h5 3' 'spectra-1-0009.h5 4' >bad
    run quick -j4
    [ "$status" -eq 2 ]
    # it is a cause of its own: the product can be made without that input
    grep -qx 'because: ' out/spectra-1-0009.h5.failed
    grep -q '^out/spectra-1-0009.h5 failed, status 4' <<<"$output"
    echo 'cframe-r1-0009.h5 3' >bad
    run quick -j4
    [ "$(records out | xargs)" = cframe-r1-0009.h5 ]
    [ -e out/spectra-1-0009.h5 ]
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
    grep -q '<title>Night n1</title>' out/night.html
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

# model NAME=VALUE...: of the times that are installed
model() {
    local v=() a
    for a in "$@"; do v+=(-v "$a"); done
    awk "${v[@]}" -f "$SPX_ROOT/share/night-model.awk" "$SPX_ROOT/share/night/times"
}

@test "the model of a night: waves by hand, and the measured exposure within 20 %" {
    # two stages whose waves can be counted: 30 parts of 8 s on 3 of 6 processors, two at a time; 400 of 3 x 2 + 1 s
    printf 'a\tcamera\tcamera\t8\t8\t-\t0\t0\nb\tpetal\tframe\t2\t1\t0.5\t100\t50\nc\tpetal\tpetal\t1\t1\t-\t0\t0\nd\tgroup\tstar\t0.01\t0.01\t-\t0\t0\n' >table
    by_hand() { awk "$@" -f "$SPX_ROOT/share/night-model.awk" table | awk '{ for (i = 1; i <= NF; i++) if ($i == "s") print $(i - 1), $(i + 1) }' | xargs; }
    [ "$(by_hand -v cores=6)" = '40.0 processors 466.7 processors 300.0 processors' ]
    # the disks: 1200 x 150 MB of each of 30 cameras at 0.1 GB/s; devices: 1200 x 0.5 s on one
    [ "$(by_hand -v cores=600 -v disk=0.1)" = '0.7 processors 1800.0 disks 7.5 processors' ]
    [ "$(by_hand -v cores=600 -v gpus=1)" = '0.7 processors 600.0 devices 7.5 processors' ]
    [ "$(by_hand -v cores=600 -v gpus=1 -v nodes=4)" = '0.7 processors 150.0 devices 7.5 processors' ]
    [ "$(by_hand -v cores=1 -v gpus=1 -v busy=1)" = '240.0 processors 1600.0 processors 1800.0 processors' ]
    # with the groups: 1600 and 40 x 4500 x 0.01 s
    [ "$(by_hand -v cores=1 -v gpus=1 -v lone=1 -v busy=1)" = '240.0 processors 3400.0 processors' ]
    # processors that wait for a fifth of the time
    [ "$(by_hand -v cores=1 -v gpus=1 -v lone=1 -v busy=0.8)" = '240.0 processors 4250.0 processors' ]
    [ "$(by_hand -v cores=1 -v lone=1)" = '240.0 processors 2800.0 processors 1800.0 processors' ]
    # beside a GPU the stages of a part, one after another, and then what all take; the coadd is beside the fit
    printf 'a\tcamera\tcamera\t8\t8\t-\t0\t0\t9\nb\tpetal\tframe\t2\t1\t0.5\t0\t0\t400\nc\tpetal\tpetal\t1\t1\t-\t0\t0\t250\ncoadd\tgroup\tstar\t0.01\t0.01\t-\t0\t0\t99\n' >table
    [ "$(by_hand -v cores=600 -v gpus=1 -v nodes=4)" = '9.0 latency 800.0 latency 7.5 processors' ]
    [ "$(by_hand -v cores=600 -v nodes=4)" = '0.7 processors 1.2 processors 7.5 processors' ]
    # stages between the first and the last count where nothing else is to be done: 1 + 2 + 3 s, or 2 x 8 s and 1 + 3
    printf 'a\tcamera\tcamera\t8\t8\t-\t0\t0\t0\nb\tpetal\tframe\t8\t8\t-\t0\t0\t1\nc\tpetal\tframe\t0\t0\t-\t0\t0\t2\nd\tpetal\tframe\t0\t0\t-\t0\t0\t3\n' >table
    [ "$(by_hand -v cores=100 -v gpus=1 -v busy=1 -v exposures=1 -v cameras=1 -v petals=1 -v lone=1)" = '0.7 processors 6.0 latency' ]
    [ "$(by_hand -v cores=1 -v gpus=1 -v busy=1 -v exposures=2 -v cameras=1 -v petals=1 -v lone=1)" = '8.0 processors 20.0 processors' ]
    # a process of each GPU has 400 petals, 3 s each
    printf 'a\tcamera\tcamera\t8\t8\t-\t0\t0\t0\nb\tpetal\tpetal\t1\t1\t-\t0\t0\t0\t2\nc\tpetal\tpetal\t1\t1\t-\t0\t0\t0\t3\n' >table
    [ "$(by_hand -v cores=100 -v gpus=1 -v lone=1)" = '2.7 processors 1200.0 queues' ]
    [ "$(by_hand -v cores=100 -v gpus=4 -v lone=1)" = '2.7 processors 300.0 queues' ]
    # processes begin once on each GPU, 20 s on ten processors, and not without
    printf 'a\tcamera\tcamera\t8\t8\t-\t0\t0\t0\nb\tpetal\tgpu\t0\t20\t-\t0\t0\t0\nc\tpetal\tpetal\t1\t1\t-\t0\t0\t0\n' >table
    [ "$(by_hand -v cores=10 -v gpus=1 -v busy=1 -v lone=1)" = '26.7 processors 42.0 processors' ]
    [ "$(by_hand -v cores=10 -v gpus=3 -v busy=1 -v lone=1)" = '26.7 processors 46.0 processors' ]
    by_hand -v cores=1 | grep '^240.0 processors 400.0 processors'
    # what make needed for the exposure that the times are of
    local measured
    measured=$(sed -n 's/^# measured exposure: \([0-9.]*\) processor seconds.*/\1/p' "$SPX_ROOT/share/night/times")
    model exposures=1 cameras=3 petals=1 groups=1 stars=400 cores=2 |
        awk -v measured="$measured" '/^night/ { print $4 * 3600, measured; exit !($4 * 3600 > 0.8 * measured && $4 * 3600 < 1.2 * measured) }'
    # and the clock beside a GPU: a petal with its arc and flat, and exposures of ten petals after these
    local alone exposures cores seconds n=0
    near() { awk -v want="$1" '/^(camera|petal|group)/ { t += $8 } END { print t, want; exit !(t > 0.8 * want && t < 1.2 * want) }'; }
    alone=$(sed -n 's/^# measured beside a GPU, a petal alone: \([0-9.]*\) s$/\1/p' "$SPX_ROOT/share/night/times")
    model exposures=1 cameras=3 petals=1 stars=400 cores=16 gpus=1 disk=100 groups=1 | near "$alone"
    while read -r exposures cores seconds; do
        model exposures="$exposures" stars=4000 lone=1 cores="$cores" gpus=1 disk=100 | grep -v ^camera | near "$seconds"
        n=$((n + 1))
    done < <(sed -n 's/^# measured beside a GPU, exposures, processors, s: //p' "$SPX_ROOT/share/night/times")
    [ $n -ge 2 ]
}

@test "the benchmark of a night: its stages, bytes, and times for the model" {
    fake_programs
    cat >fake/h5table <<'END'
#!/usr/bin/env bash
case $3 in
*frame*) printf '1. fits2h5\n    seconds  read.device 5\n2. specx-extract\n    device   cuda:0 (a GPU)\n    seconds  read 1 extract.device 0.25\n             more.device 0.5\n' ;;
*/rv-*) printf '1. rvs-fit\n    device   cuda:0 (a GPU)\n    seconds  read 1 fit 0.5 write 2\n' ;;
*) printf '1. specx-extract\n    device   cuda:0 (a GPU)\n    seconds  extract.device 9\n2. specx-shift\n    device   cpu\n    seconds  fit 3\n' ;;
esac
END
    # a night of two exposures of one petal, which is simulated already
    local c e d=bench/night/preproc/1
    mkdir -p bench/night/psf/1
    for c in b0 r0 z0; do
        true >bench/night/psf/1/psf-$c.fits
        for e in 00000002 00000003 00000004; do
            mkdir -p $d/$e
            printf "%-80s%-80s" "FLAVOR  = '$([ $e = 00000002 ] && echo flat || echo science)'" "TILEID  = 50" >$d/$e/preproc-$c-$e.fits
        done
    done
    touch bench/night/{templates,continuum}.h5 bench/night/{calls,bad}
    echo '1 1 5 2 whole 1' >bench/night/size
    NIGHT=1 FIBRES=5 EXPOSURES=2 JOBS=2 bash "$SPX_ROOT/share/night/bench.sh" bench cpu cuda:0 >table
    cat table bench/times
    # stage, number, share; the programs in it
    [ "$(awk '/ cpu:$/ { on = 1 } / cuda:0:$/ { on = 0 } on && /^(psf|frame|sframe|spectra|rv) / { print $1, $2 }' table | xargs)" = 'psf 9 frame 9 sframe 6 spectra 2 rv 1' ]
    grep -q '^  specx-extract  *9 ' table
    [ "$(cut -f 1-3 bench/times | grep -v '^#' | tr '\t' ' ' | LC_ALL=C sort | xargs)" = "$(printf '%s ' 'cframe petal frame' 'coadd group star' \
        'flat camera camera' 'frame camera camera' 'frame petal frame' 'psf camera camera' 'psf petal frame' 'rv group star' \
        'rvtab group star' 'sframe petal frame' 'spectra petal petal' 'standards petal petal' | xargs)" ]
    # an image of 160 bytes and its PSF; seconds of the device of the last record
    [ "$(awk -F '\t' '$1 == "frame" && $2 == "petal" { print $6, $7 * 1e6 }' bench/times)" = "0.75 $((160 + $(stat -c %s bench/night/redux/1/psf-r0-00000003.h5)))" ]
    # the step that computes, where a program notes no seconds of the device: 0.5 s of 8 stars; nothing on the CPU
    [ "$(awk -F '\t' '$1 == "rv" { print $6 }' bench/times)" = 0.0625 ]
    [ "$(awk -F '\t' '$1 == "psf" { print $6 }' bench/times | xargs)" = '0 0' ]
    grep -q '^processors .* s measured .* s model' table
    # ended while it waits for a program: what was made until then
    echo rv-50.h5 >bench/night/hold
    NIGHT=1 FIBRES=5 EXPOSURES=2 JOBS=2 bash "$SPX_ROOT/share/night/bench.sh" bench cpu >part 2>told &
    local bench=$!
    until [ -e bench/night/held-rv-50.h5 ]; do sleep 0.05; done
    local ended=0
    kill $bench
    wait $bench || ended=$?
    touch bench/night/go
    cat part told
    [ $ended -eq 1 ]
    [ "$(awk '/^(psf|frame|sframe|spectra|rv) / { print $1, $2 }' part | xargs)" = 'psf 9 frame 9 sframe 6 spectra 2' ]
    grep -q 'ended; of the products' told
    # a stage that fails ends it
    echo 'flat-r0.h5 3' >bench/night/bad
    run env NIGHT=1 FIBRES=5 EXPOSURES=2 JOBS=2 bash "$SPX_ROOT/share/night/bench.sh" bench
    [ "$status" -eq 1 ]
    [[ $output == *"flat-r0.h5 failed, status 3"* ]]
}
