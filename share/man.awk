# awk -v version=V [-v insert=COMMAND] -f man.awk CHANGELOG.md PAGE.in: a manual page from its text.
# @VERSION@ and @DATE@ are replaced (the date of the newest release in CHANGELOG.md, so that a page does not depend on
# when it was made), and a line @OPTIONS@ or @SCHEMA@ by what COMMAND prints.
FNR == NR {
    if (date == "" && match($0, /[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/)) {
        split("January February March April May June July August September October November December", month, " ")
        date = month[substr($0, RSTART + 5, 2) + 0] " " (substr($0, RSTART + 8, 2) + 0) ", " substr($0, RSTART, 4)
    }
    next
}
$0 == "@OPTIONS@" || $0 == "@SCHEMA@" {
    while ((status = (insert | getline line)) > 0)
        print line
    if (status < 0 || close(insert) != 0) {
        print FILENAME ": failed: " insert > "/dev/stderr"
        exit 1
    }
    next
}
{
    gsub(/@VERSION@/, version)
    gsub(/@DATE@/, date)
    print
}
