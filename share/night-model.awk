# awk [-v NAME=VALUE ...] -f night-model.awk night/times: how long a night lasts on machines that nobody has at hand, and what
# it reads and writes, from measured times of single stages (share/night/times). SCALE in specpipe-night(7) has its results.
#
#     exposures=40 cameras=30 petals=10 groups=20 stars=4500   the night: stars of an exposure
#     lone=0                    1: groups are petals of tiles that were exposed once (GROUP=petal), made with the petals
#     nodes=1 cores=2 gpus=0    machines, with the processors and GPUs of each
#     disk=1                    GB/s that each node reads and writes; shared=0: of all nodes together, 0: no other limit
#     latency=0                 seconds from the end of a wave to the begin of the next: a scheduler's
#     busy=0.8                  part of the time that the processors beside a GPU are at work, for petals: else they wait for it, for
#                               each other's memory, and for the first and the last petal
#
# A night is made in three waves, of cameras, petals of exposures, and groups (reduce.mk), and a wave in its stages, one after
# another, for all parts wait for the same thing. A stage lasts as long as the slowest of these, a wave at least as its disks:
#
#     processors   rounds x processor seconds of a part / processors of a part: each has 3, or as many as there are for it, up
#                  to 12; rounds = parts / parts that run at a time, rounded up
#     devices      seconds that a GPU is held / GPUs; stages without a time of the GPU take processors alone
#     latency      beside a GPU: seconds of a product that has the machine alone. Processes begin, read and write in them as long
#                  as they compute; the coadd is beside the fit
#     disks        bytes / bytes a second
#
# Petals beside a GPU do not wait for each other: each goes on to its next stage while others are in theirs. Their wave lasts as
# long as the processor seconds, of processors that are busy, or those of the device, of all stages together, or as the slowest
# process, each of which takes one petal after another ("queues": its seconds of a petal x petals / GPUs, which have processes of their
# own), and the latencies of the first and the last stage, when nothing else is there to do; at least as long as one petal takes
# through all stages.
# A stage whose times are of a "gpu" is there once for each: the processes of its job begin.
#
# Not in it: parts that are longer than others, and processors of a part that wait for each other. So it is a lower limit.
BEGIN {
    FS = "\t"
    exposures = set(exposures, 40); cameras = set(cameras, 30); petals = set(petals, 10); groups = set(groups, 20)
    stars = set(stars, 4500); nodes = set(nodes, 1); cores = set(cores, 2); disk = set(disk, 1); busy = set(busy, 0.8)
    if (lone > 0 && gpus > 0)
        groups = exposures * petals
}
function set(name, default_value) { return name == "" ? default_value : name }
function ceil(x) { return x == int(x) ? x : int(x) + 1 }
function min(a, b) { return a < b ? a : b }
function max(a, b) { return a > b ? a : b }
/^#/ || NF < 7 { next }
{
    # stage, wave, what its times are of, processor seconds, those beside a GPU, seconds of the GPU, MB read, MB written,
    # seconds of one product alone, beside a GPU, and of a petal in the slowest process of the stage
    stage = $1 == "coadd" ? "rv" : $1
    wave = $2 == "group" && lone > 0 && gpus > 0 ? "petal" : $2
    if (!((wave, stage) in cpu))
        stages[wave] = stages[wave] " " stage
    cpu[wave, stage] += units($3) * (gpus > 0 ? $5 : $4)
    gpu[wave, stage] += gpus > 0 && $6 != "-" ? units($3) * $6 : 0
    alone[wave, stage] += gpus > 0 && $1 != "coadd" ? $9 : 0
    each[wave, stage] = max(each[wave, stage], gpus > 0 ? $10 : 0)
    get[wave] += units($3) * $7
    put[wave] += units($3) * $8
}
function units(one) {
    return one == "gpu" ? nodes * gpus : one == "camera" ? cameras : one == "frame" ? exposures * cameras : one == "petal" ? exposures * petals : exposures * stars
}
function run(wave, parts,    of_part, places, n, k, stage, t, limit, most, sum, seconds, bytes, name, through, chain) {
    of_part = min(cores, max(3, min(12, int(nodes * cores / parts))))
    places = nodes * max(1, int(cores / of_part))
    n = split(stages[wave], stage, " ")
    through = gpus > 0 && wave == "petal"
    for (k = 1; k <= n && through; k++) {
        sum["processors"] += cpu[wave, stage[k]] / nodes / cores / busy
        sum["devices"] += gpu[wave, stage[k]] / min(nodes * gpus, parts)
        sum["queues"] = max(sum["queues"], each[wave, stage[k]] * parts / min(nodes * gpus, parts))
        chain += alone[wave, stage[k]]
        if (k == 1 || k == n)
            sum["latency"] += alone[wave, stage[k]]
        work += cpu[wave, stage[k]]
    }
    if (through) {
        most = "processors"
        for (limit in sum)
            if (limit != "latency" && sum[limit] > sum[most])
                most = limit
        seconds = sum[most] + sum["latency"]
        for (limit in sum)
            if (limit != "latency" && limit != most)
                delete sum[limit]
        if (chain > seconds)
            seconds = sum["latency"] = chain
    }
    for (k = 1; k <= n && !through; k++) {
        t["processors"] = ceil(parts / places) * cpu[wave, stage[k]] / parts / of_part
        t["devices"] = gpus > 0 ? gpu[wave, stage[k]] / min(nodes * gpus, parts) : 0
        t["latency"] = alone[wave, stage[k]]
        most = "processors"
        for (limit in t)
            if (t[limit] > t[most])
                most = limit
        seconds += t[most]
        sum[most] += t[most]
        work += cpu[wave, stage[k]]
    }
    for (limit in sum)
        if (name == "" || sum[limit] > sum[name])
            name = limit
    bytes = get[wave] + put[wave]
    if (bytes / 1000 / (shared > 0 ? min(shared, nodes * disk) : nodes * disk) > seconds) {
        seconds = bytes / 1000 / (shared > 0 ? min(shared, nodes * disk) : nodes * disk)
        name = "disks"
    }
    printf "%-8s %6d parts %6d at a time %10.1f s  %-10s %8.2f GB/s\n", wave, parts, min(places, parts), seconds, name, bytes / 1000 / seconds
    all += seconds + latency
    gigabytes += bytes / 1000
    written += put[wave] / 1000
}
END {
    run("camera", cameras)
    run("petal", petals * exposures)
    if (!(lone > 0 && gpus > 0))
        run("group", groups)
    files = 3 * cameras + exposures * (4 * cameras + 2 * petals) + 3 * groups + 1
    printf "night    %10.1f s, %.4g processor hours, %.0f GB read and written, %.0f GB of products in %d files\n", all, work / 3600, gigabytes, written, files
    nights = 40e6 / (exposures * stars)
    printf "survey   %10.1f days of 40 million stars, %.0f nights, %.0f TB of products in %.1f million files\n", all * nights / 86400, nights, written * nights / 1000, files * nights / 1e6
}
