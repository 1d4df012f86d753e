
# Names that the source of the command line offers.
complete -c starhop -n "__fish_starhop_using_subcommand get ls" -f -a "(command starhop names (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)"
