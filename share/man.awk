# awk -v version=V [-v options=COMMAND] -f man.awk CHANGELOG.md PAGE.in: a manual page from its text.
# @VERSION@ and @DATE@ are replaced (the date of the newest release in CHANGELOG.md, so that a page does not depend on
# when it was made), and a line @OPTIONS@ by what COMMAND prints.
FNR == NR {
    if (date == "" && match($0, /[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/)) {
        split("January February March April May June July August September October November December", month, " ")
        date = month[substr($0, RSTART + 5, 2) + 0] " " (substr($0, RSTART + 8, 2) + 0) ", " substr($0, RSTART, 4)
    }
    next
}
$0 == "@OPTIONS@" {
    while ((status = (options | getline line)) > 0)
        print line
    if (status < 0 || close(options) != 0) {
        print FILENAME ": failed: " options > "/dev/stderr"
        exit 1
    }
    next
}
{
    gsub(/@VERSION@/, version)
    gsub(/@DATE@/, date)
    print
}
