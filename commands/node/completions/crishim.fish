# fish completion for NAME: NAME completion fish | source
function __crishim_complete
	# fish gives finished words without their quotes, and the open one as it is typed.
	set -l words (commandline -opc)
	set -l word (commandline -ct)
	set -l plain (string unescape -- "$word"); and set word $plain
	for reply in ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
		if test "$reply" = :files
			complete -C "'' "(string escape -- "$word") # files, as of any command
		else
			printf '%s\n' "$reply"
		end
	end
end
complete -c NAME -f -a '(__crishim_complete)'
