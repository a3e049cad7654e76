# fish completion for NAME: NAME completion fish | source
function __crishim_complete
	set -l words (commandline -opc) (commandline -ct)
	for reply in ($words[1] __complete $words[2..-1] 2>/dev/null)
		if test $reply = :files
			__fish_complete_path (commandline -ct)
		else
			echo $reply
		end
	end
end
complete -c NAME -f -a '(__crishim_complete)'
