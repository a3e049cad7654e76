package verbs

import (
	"context"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestPullProgress(t *testing.T) {
	const layers = "app: layer cdef01234567 is there already: 1 of 2 layers done\napp: layer 0123456789ab: 2 of 2 layers done\n"
	cases := map[string]struct {
		own  bool // it is our shim
		name string
		args []string
		errs string
	}{
		"our shim":           {own: true, errs: layers},
		"quiet":              {own: true, args: []string{"-q"}},
		"as crictl":          {own: true, name: "crictl"},
		"another runtime":    {},
		"there already":      {own: true, args: []string{"--if-missing"}},
		"within the timeout": {own: true, args: []string{"--pull-timeout", "5m"}, errs: layers},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			c := withStub(t, stubcri.Options{Private: tt.own})
			id := c.stub.AddImage("app")
			if tt.name == "" {
				tt.name = "crishim"
			}
			out := "Image is up to date for " + id + "\n"
			if strings.Join(tt.args, "") == "-q" {
				out = id + "\n"
			}
			c.runAs(t.Context(), tt.name, append([]string{"pull", "app"}, tt.args...)...).want(t, 0, out, tt.errs)
		})
	}
}

// Errors read the same with and without the private service.
func TestPullFailures(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		fail error
		errs string
	}{
		"no such image": {
			args: []string{"missing"},
			errs: "crishim: pull missing: pull missing: no such repository\n",
		},
		"no credentials": {
			args: []string{"private"},
			errs: "crishim: pull private: pull private: authorization required\n" +
				"hint: if the image is private, log in with `docker login`, or give --creds or --authfile\n",
		},
		"wrong credentials": {
			args: []string{"app", "--creds", "me:wrong"}, fail: status.Error(codes.Unauthenticated, "pull image app: unauthorized"),
			errs: "crishim: pull app: unauthorized\n" +
				"hint: are user and password right, and may this user read the image? `docker login`, --creds and --authfile give others\n",
		},
		"registry is away": {
			args: []string{"app", "--retries", "1"}, fail: status.Error(codes.Unavailable, "RegistryUnavailable: no such host"),
			errs: "crishim: warning: pull app: the registry cannot be reached: no such host; trying again\n" +
				"crishim: pull app: the registry cannot be reached: no such host\n" +
				"hint: is the image's name right, and can this machine reach its registry?\n",
		},
	}
	for name, tt := range cases {
		for _, own := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				c := withStub(t, stubcri.Options{Private: own})
				c.stub.Fail("PullImage", tt.fail)
				c.run(append([]string{"pull"}, tt.args...)...).want(t, 1, "", tt.errs)
			})
		}
	}
}

func TestPullTimeout(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		c := withStub(t, stubcri.Options{Private: own})
		c.stub.Before("PullImage", func(ctx context.Context) { <-ctx.Done() })
		r := c.run("pull", "app", "--pull-timeout", "100ms")
		if r.code != 1 || !strings.Contains(r.err, "no answer from") || !strings.Contains(r.err, "--pull-timeout waits longer") {
			t.Errorf("own shim %v: got %+v", own, r)
		}
	}
}

// Errors do not contain the output of a credential helper, and the helper ends with --pull-timeout.
func TestPullWithACredentialHelper(t *testing.T) {
	for _, tt := range []struct{ name, script, errs string }{
		{
			"fails", "echo s3cret; echo hint: s3cret; exit 1",
			"crishim: credentials for h.example: docker-credential-crishimtest: exit status 1\n",
		},
		{
			"hangs", "sleep 1000",
			"crishim: credentials for h.example: docker-credential-crishimtest: no answer: --pull-timeout of 300ms is over\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "docker-credential-crishimtest"), []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			file := c.file("config.json", `{"credHelpers":{"h.example":"crishimtest"}}`)
			hint := "hint: check credsStore and credHelpers in " + file + ", or give --creds or --authfile\n"
			c.run("pull", "h.example/x", "--authfile", file, "--pull-timeout", "300ms").want(t, 1, "", tt.errs+hint)
		})
	}
}

// The credentials that arrive at the runtime, from each place that has some.
func TestPullCredentials(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("filed:secret"))
	bin := t.TempDir()
	helper := "#!/bin/sh\necho '{\"ServerURL\": \"registry.example.com\", \"Username\": \"helped\", \"Secret\": \"secret\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-crishimtest"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cases := map[string]struct {
		args  []string
		stdin string
		file  string // for --authfile
		vars  map[string]string
		user  string
	}{
		"anonymous":          {file: "{}"},
		"creds":              {args: []string{"--creds", "me:secret"}, user: "me"},
		"creds and stdin":    {args: []string{"--creds", "me", "--password-stdin"}, stdin: "secret\n", user: "me"},
		"username and stdin": {args: []string{"-u", "me", "--password-stdin"}, stdin: "secret\r\n", user: "me"},
		"auth":               {args: []string{"--auth", encoded}, user: "filed"},
		"environment":        {vars: map[string]string{"CRICTL_CREDS": "env:secret"}, user: "env"},
		"login file":         {file: `{"auths": {"registry.example.com": {"auth": "` + encoded + `"}}}`, user: "filed"},
		"flag before file":   {args: []string{"--creds", "me:secret"}, file: `{"auths": {"registry.example.com": {"auth": "` + encoded + `"}}}`, user: "me"},
		"another registry":   {file: `{"auths": {"elsewhere.example.com": {"auth": "` + encoded + `"}}}`},
		"helper":             {file: `{"credHelpers": {"registry.example.com": "crishimtest"}}`, user: "helped"},
		"store":              {file: `{"credsStore": "crishimtest"}`, user: "helped"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			c.stdin, c.vars = tt.stdin, map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}
			maps.Copy(c.vars, tt.vars)
			args := append([]string{"-D", "pull", "registry.example.com/app:v1"}, tt.args...)
			if tt.file != "" {
				args = append(args, "--authfile", c.file("auth.json", tt.file))
			}
			r := c.run(args...)
			if r.code != 0 || strings.Contains(r.out+r.err, "secret") || strings.Contains(r.out+r.err, encoded) {
				t.Errorf("got %+v", r)
			}
			sent := pullsOf(c.stub)
			if len(sent) != 1 || sent[0].GetAuth().GetUsername() != tt.user || (tt.user != "") != (sent[0].GetAuth().GetPassword() == "secret") {
				t.Errorf("sent %v", sent)
			}
		})
	}
}

// pullsOf are the pulls that arrived at the runtime.
func pullsOf(s *stubcri.Server) []*runtimeapi.PullImageRequest {
	var pulls []*runtimeapi.PullImageRequest
	for _, call := range s.Calls() {
		if r, ok := call.Request.(*runtimeapi.PullImageRequest); ok {
			pulls = append(pulls, r)
		}
	}
	return pulls
}

// Several images are pulled concurrently and reported in the order of the
// arguments. A failed pull does not stop the others.
func TestPullSeveral(t *testing.T) {
	for _, own := range []bool{true, false} {
		c := withStub(t, stubcri.Options{Private: own})
		a, b := c.stub.AddImage("a"), c.stub.AddImage("b")
		var meeting sync.WaitGroup
		meeting.Add(3)
		c.stub.Before("PullImage", func(context.Context) {
			meeting.Done()
			meeting.Wait() // for the others
		})
		c.run("pull", "-q", "a", "missing", "b").want(t, 1, a+"\n"+b+"\n", "crishim: pull missing: pull missing: no such repository\n")
	}
}

func TestPullIfMissing(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	id := c.stub.AddImage("there")
	if r := c.run("pull", "--if-missing", "there", "new"); r.code != 0 || !strings.HasPrefix(r.out, "Image is up to date for "+id+"\n") {
		t.Errorf("got %+v", r)
	}
	if sent := pullsOf(c.stub); len(sent) != 1 || sent[0].GetImage().GetImage() != "new" {
		t.Errorf("pulled %v", sent)
	}
}

// Without progress from the runtime, pull polls ImageFsInfo. It also works if
// the runtime does not implement that.
func TestPullWatchesTheStore(t *testing.T) {
	for _, unknown := range [][]string{nil, {"ImageFsInfo"}} {
		c := withStub(t, stubcri.Options{Unimplemented: unknown})
		asked := make(chan struct{}, 1)
		c.stub.Before("ImageFsInfo", func(context.Context) {
			select {
			case asked <- struct{}{}:
			default:
			}
		})
		c.stub.Before("PullImage", func(context.Context) { <-asked })
		if r := c.run("pull", "app"); r.code != 0 || r.err != "" {
			t.Errorf("got %+v", r)
		}
	}
}
