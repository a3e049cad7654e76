package verbs

import (
	"strings"
	"testing"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
)

func TestArrange(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"ps", "crishim ps --"},
		{"-D ps", "crishim --debug ps --"},
		{"ps --debug", "crishim --debug ps --"},
		{"ps -a --runtime-endpoint /x -q", "crishim --runtime-endpoint=/x ps --all --quiet --"},
		{"stop web --timeout 3 db", "crishim stop --timeout=3 -- web db"},
		{"-t 5 stop -t3 web", "crishim --timeout=5 stop --timeout=3 -- web"},
		{"--compat=crictl ps -aqn2", "crishim --compat=crictl ps --all --quiet --last=2 --"},
		{"ps -n=2", "crishim ps --in-namespace=2 --"},
		{"ps -name x", "crishim ps --name=x --"}, // one dash, as Go's flags allow
		{"stop -t 1 web --timeout 3", "crishim stop --timeout=1 --timeout=3 -- web"},
		{"-t 5 ps -a --timeout 3 --all=false -q", "crishim --timeout=5 --timeout=3 ps --all --all=false --quiet --"},
		{"-r /x runp -r kata --runtime runc pod", "crishim --runtime-endpoint=/x runp --runtime=kata --runtime=runc -- pod"},
		{"logs web --tail -1", "crishim logs --tail=-1 -- web"},
		{"rm -- -f", "crishim rm -- -f"},
		{"rm a -- -f --all", "crishim rm -- a -f --all"},
		{"runp -", "crishim runp -- -"},
		{"img busybox -q", "crishim images --quiet -- busybox"},
		{"runp jsonschema", "crishim runp jsonschema --"},
		{"create jsonschema -p", "crishim create jsonschema --pod-config --"},
		{"exec -it web sh -c ls", "crishim exec --stdin --tty -- web sh -c ls"},
		{"exec web -- ls -l", "crishim exec -- web ls -l"},
		{"exec -- web -- ls -l", "crishim exec -- web ls -l"},
		{"exec -i web -t -- sh -c ls -- x", "crishim exec --stdin --tty -- web sh -c ls -- x"},
		{"exec web -it", "crishim exec --stdin --tty -- web"},
		{"exec web ls -- -l", "crishim exec -- web ls -- -l"},
		{"exec web --debug -- ls", "crishim --debug exec -- web ls"},
		{"exec --name ^web ls -l", "crishim exec --name=^web -- ls -l"},
		{"exec --name ^web -- ls -- -l", "crishim exec --name=^web -- ls -- -l"},
		{"exec -e A=b -e web ls", "crishim exec --env=A=b --ignore-errors -- web ls"},
		{"exec -l app=web ls", "crishim exec --selector=app=web -- ls"},
		{"debug web --image busybox -- ps", "crishim debug --image=busybox -- web ps"},
		{"debug web -- ps -- -l", "crishim debug -- web ps -- -l"},
		{"run busybox --rm -e A=b -- ls -l", "crishim run --rm --env=A=b -- busybox ls -l"},
		{"run -- busybox -- -l", "crishim run -- busybox -l"},
		{"run --image busybox -- ls -- -l", "crishim run --image=busybox -- ls -- -l"},
		{"ps -n 5", "crishim ps --in-namespace=5 --"},
		{"ps -l app=web", "crishim ps --selector=app=web --"},
		{"ps -l -q", "crishim ps --latest --quiet --"},
		{"ps -A --all-namespaces", "crishim ps --"},
		{"stats --no-stream web", "crishim stats -- web"},
		{"--compat=crictl exec web -it -- sh", "crishim --compat=crictl exec -- web -it -- sh"},
		{"--compat=crictl exec web -- sh", "crishim --compat=crictl exec -- web sh"},
		{"run --rm -it busybox sh -i", "crishim run --rm --stdin --tty -- busybox sh -i"},
		{"run -e A=b --image busybox ls -l", "crishim run --env=A=b --image=busybox -- ls -l"},
		{"run ./c.json ./p.json -T 5", "crishim run --cancel-timeout=5 -- ./c.json ./p.json"},
	} {
		got, err := arrange(append([]string{"crishim"}, strings.Fields(test.line)...))
		if err != nil {
			t.Errorf("%q: %v", test.line, err)
		} else if line := strings.Join(got.Args, " "); line != test.want {
			t.Errorf("%q is arranged as\n%s\nwant\n%s", test.line, line, test.want)
		}
	}
}

func arrange(args []string) (argv.Line, error) {
	return argv.Arrange(testApp().Table(), args, cli.IsFile)
}

func TestPassesStatus(t *testing.T) {
	for line, want := range map[string]bool{
		"ps":                    false,
		"exec web ls":           true,
		"exec --help":           false,
		"run busybox":           true,
		"run -d busybox":        false,
		"run ./c.json ./p.json": false,
		"run --rm ./c.json x":   true,
		"run --image ./c.json":  true,
		"run -":                 false,
	} {
		got, err := arrange(append([]string{"crishim"}, strings.Fields(line)...))
		if err != nil || got.PassesStatus() != want {
			t.Errorf("%q passes the command's status: %t (%v), want %t", line, got.PassesStatus(), err, want)
		}
	}
}

func FuzzArrange(f *testing.F) {
	for _, line := range []string{"ps -a", "stop web -t 3", "exec -it web sh", "-D --config x run --rm a b", "ps -aqn2", "rm -- -f"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := arrange(append([]string{"crishim"}, strings.Fields(line)...))
		if err == nil && !got.Version && (len(got.Args) == 0 || got.Args[0] != "crishim") {
			t.Errorf("%q is arranged as %q", line, got.Args)
		}
	})
}
