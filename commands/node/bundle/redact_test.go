package bundle

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamesOfSecrets: what is named like a secret, and what is only about one.
func TestNamesOfSecrets(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"password": true, "DB_PASSWORD": true, "PGPASSWORD": true, "dbPass": true, "apiKey": true, "AWS_SECRET_ACCESS_KEY": true, "auth": true, "identitytoken": true, "X-Auth-Token": true,
		"clientSecret": true, "splunk-token": true, "client-key-data": true, "etcd_password": true, "k8s_auth_token": true, "TOKEN_2": true, "mytoken": true, "APITokenV2": true, "--requirepass": true,
		"author": false, "tokenPath": false, "secretName": false, "imagePullPolicy": false, "key": false, "passed": false, "compass": false, "PWD": false, "passwordFile": false,
		"authorities": false, "monkey": false, "pinned": false, "": false, "tokenExpirationSeconds": false,
	} {
		if got := isSecretName(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

// TestTextsWithSecrets: what is left of texts in which secrets are known by their form or by what is before them.
func TestTextsWithSecrets(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA1234567890\nabcdefabcdefabcdefabcdefabcdef\n-----END RSA PRIVATE KEY-----"
	for _, c := range []struct {
		form       form
		text, want string
	}{
		{prose, "", ""},
		{prose, "plain text: of no interest, a=b, http://example.com:80/x@y", "plain text: of no interest, a=b, http://example.com:80/x@y"},
		{prose, "failed to fetch token: unauthorized", "failed to fetch token: unauthorized"},
		{prose, "password=hunter2 user=x", "password=[removed] user=x"},
		{prose, `{"password":"hun ter\"2","a":1}`, `{"password":"[removed]","a":1}`},
		{prose, `level=info msg="login" api_key='k k'`, `level=info msg="login" api_key='[removed]'`},
		{prose, `level=error msg="login failed: password=hunter2, again"`, `level=error msg="login failed: password=[removed], again"`},
		{prose, "JAVA_OPTS=-Ddb.password=hunter2", "JAVA_OPTS=-Ddb.password=[removed]"},
		{prose, "Generated root password: hunter; wrong Password: x", "Generated root password: [removed]; wrong Password: [removed]"},
		{prose, "its probe runs app --password hunter", "its probe runs app --password [removed]"},
		{prose, `tokens=["hunter2", "hunter3"] token=/kd83jdKfu3J92kdLs0aPq`, "tokens=[removed] token=[removed]"},
		{prose, `{"name":"DB_PASSWORD","value":"hun,ter2"} {\"name\":\"DB_PASSWORD\",\"value\":\"hun,ter2\"}`, `{"name":"DB_PASSWORD","value":"[removed]"} {\"name\":\"DB_PASSWORD\",\"value\":\"[removed]\"}`},
		{prose, "Env:[]EnvVar{EnvVar{Name:MODE,Value:hun,ter2,ValueFrom:nil,},},", "Env:[]EnvVar{EnvVar{Name:MODE,Value:[removed],ValueFrom:nil,},},"},
		{prose, `v1.EnvVar{Name:"MODE", Value:"hun\"ter2", ValueFrom:(*v1.EnvVarSource)(nil)}`, `v1.EnvVar{Name:"MODE", Value:"[removed]", ValueFrom:(*v1.EnvVarSource)(nil)}`},
		{prose, "POST https://hooks.slack.com/services/T0/B0/x0 failed", "POST https://hooks.slack.com/services/[removed] failed"},
		{prose, "a\n" + pem + "\nb", "a\n[removed]\nb"},
		{prose, "a\n" + pem[:80], "a\n[removed]"},
		{prose, pem[40:], "[removed]"},
		{prose, "key " + base64.StdEncoding.EncodeToString([]byte(pem)), "key [removed]"},
		{prose, "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2 now", "got [removed] now"},
		{prose, "proxy http://user:p%40ss@proxy:3128/ used", "proxy http://[removed]@proxy:3128/ used"},
		{prose, "clone https://x0123456789@git.example.com/r", "clone https://[removed]@git.example.com/r"},
		{prose, "dial ssh://admin@host", "dial ssh://admin@host"},
		{prose, "dsn app:hunter2@tcp(db:3306)/x", "dsn [removed]@tcp(db:3306)/x"},
		{prose, "Authorization: Bearer abc.def-123456", "Authorization: [removed]"},
		{prose, "with bearer 0123456789abcdef", "with bearer [removed]"},
		{prose, "GET /v2/?X-Amz-Signature=abcdef&x=1&X-Amz-Credential=k", "GET /v2/?X-Amz-Signature=[removed]&x=1&X-Amz-Credential=[removed]"},
		{prose, "AKIAIOSFODNN7EXAMPLE ghp_0123456789012345678901234567890123456", "[removed] [removed]"},
		{prose, "join --token abcdef.0123456789abcdef x", "join --token [removed] x"},
		{prose, "root:$6$salt$0123456789abcdef:1", "root:[removed]:1"},
		{prose, "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/db-login/k", "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/[removed]/k"},
		{settings, "env:\n- name: DB_PASSWORD\n  value: hunter2", "env:\n- name: DB_PASSWORD\n  value: [removed]"},
		{settings, "tokens = [\"a-1\", \"b-2\"]", "tokens = [removed]"},
		{settings, "auth:\n  username: me\n  x: |\n    abc\nother: 1\npassword: hunter", "auth:\n  [removed]\n  [removed]\n    [removed]\nother: 1\npassword: [removed]"},
		{settings, "[plugins.registry.auth]\n  password = \"hunter\"\n  secret_file = \"/etc/x\"", "[plugins.registry.auth]\n  password = \"[removed]\"\n  secret_file = \"/etc/x\""},
		{command, "mysql -u root -phunter2 db && curl -u me:hunter2 http://x", "mysql -u root -p[removed] db && curl -u me:[removed] http://x"},
		{command, "helm --set=db.password=hunter2 --from-literal=token=hunter3", "helm --set=db.password=[removed] --from-literal=token=[removed]"},
		{command, "app -p 8080 --password hunter2 -p hunter3", "app -p 8080 --password [removed] -p [removed]"},
	} {
		r := newRedactor(false)
		if diff := cmp.Diff(c.want, r.text(c.text, c.form)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

// TestDocuments: what is left of JSON, by the names of its fields, and of the same values elsewhere.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ document, elsewhere, want, wantElsewhere string }{
		"variables": {
			`{"env":["A=planted-value","PATH=/bin","EMPTY="],"envs":[{"key":"B","value":"other-planted"}],"Config":{"Env":["C=third=planted"]}}`,
			"log: planted-value, third=planted, " + base64.StdEncoding.EncodeToString([]byte("other-planted")) + " in /bin",
			`{"Config":{"Env":["C=[removed]"]},"env":["A=[removed]","PATH=[removed]","EMPTY="],"envs":[{"key":"B","value":"[removed]"}]}`,
			"log: [removed], [removed], [removed] in /bin",
		},
		"fields": {
			`{"registry":{"configs":{"r":{"auth":{"username":"me","password":"hunter2"}}}},"passwordFile":"/etc/p","token":null,"n":{"apiKey":12345678,"enabled":true}}`,
			"hunter2 is not hunter23, 12345678", `{"n":{"apiKey":"[removed]","enabled":true},"passwordFile":"/etc/p","registry":{"configs":{"r":{"auth":{"password":"[removed]","username":"[removed]"}}}},"token":null}`,
			"[removed] is not hunter23, [removed]",
		},
		"arguments": {
			`{"args":["app","--password=hunter22","-p","secret-word","-p","80","--token","tok-1234"],"command":["sh","-c","DB_PASS=inline-secret exec app --api-key=k-123456"]}`,
			"tok-1234 inline-secret", `{"args":["app","--password=[removed]","-p","[removed]","-p","80","--token","[removed]"],"command":["sh","-c","DB_PASS=[removed] exec app --api-key=[removed]"]}`,
			"[removed] [removed]",
		},
		"annotations": {
			`{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"env\":[{\"name\":\"X\",\"value\":\"applied-secret\"}]}","team":"blue","a/api-token":"annotated-1"},"labels":{"x":"annotated-1","token":"labelled-12"}}`,
			"applied-secret labelled-12", `{"annotations":{"a/api-token":"[removed]","kubectl.kubernetes.io/last-applied-configuration":"[removed]","team":"blue"},"labels":{"token":"[removed]","x":"[removed]"}}`,
			"[removed] [removed]",
		},
		"documents in strings": {`{"info":"{\"env\":[\"A=nested-secret\"]}"}`, "nested-secret", `{"info":"{\"env\":[\"A=[removed]\"]}"}`, "[removed]"},
		"names and values":     {`{"variables":[{"name":"API_TOKEN","value":"listed-secret"},{"name":"MODE","value":"quick"}]}`, "listed-secret", `{"variables":[{"name":"API_TOKEN","value":"[removed]"},{"name":"MODE","value":"quick"}]}`, "[removed]"},
		"lines of a key": {
			`{"log":["before","-----BEGIN PRIVATE KEY-----","MIIEowIBAAKCAQEA1234567890","-----END PRIVATE KEY-----"]}`,
			"2026-01-02T03:04:05Z stdout MIIEowIBAAKCAQEA1234567890", "{\"log\":\"before\\n[removed]\"}", "2026-01-02T03:04:05Z stdout [removed]",
		},
		"no padding":   {`{"env":["A=planted-value"]}`, base64.RawStdEncoding.EncodeToString([]byte("planted-value")), `{"env":["A=[removed]"]}`, "[removed]"},
		"public names": {`{"env":["POSTGRES_PASSWORD=postgres"]}`, "image postgres", `{"env":["POSTGRES_PASSWORD=[removed]"]}`, "image postgres"},
	} {
		r := newRedactor(false)
		r.publish("postgres")
		document, err := decode([]byte(c.document))
		if err != nil {
			t.Fatal(err)
		}
		document = r.tree("", document)
		r.learn()
		text, err := encode(r.againTree("", document), "")
		if diff := cmp.Diff(c.want, string(text)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if diff := cmp.Diff(c.wantElsewhere, r.againText(c.elsewhere)); diff != "" {
			t.Errorf("%s elsewhere (-want +got):\n%s", name, diff)
		}
		list, err := json.Marshal(r.removals())
		if err != nil || strings.Contains(string(list), "hunter") || strings.Contains(string(list), "planted") {
			t.Errorf("%s: the list of what was removed has it: %s", name, list)
		}
	}
}

// TestNamesOfFilesAreRedacted: a container may be called what is a secret elsewhere.
func TestNamesOfFilesAreRedacted(t *testing.T) {
	t.Parallel()
	b := collected(t, Part{Name: "one", Collect: func(_ context.Context, f *Files) error {
		f.Log("logs/a_hunter2.log", []byte("pin=1 --token abcd1234"))
		return f.Document("b.json", []byte(`{"password":"hunter2","token":"a_1"}`), true)
	}})
	text, err := json.Marshal([]any{b.Results, b.Removals, b.files[0].name, b.files[1].name})
	if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "logs/a_[removed].log") {
		t.Errorf("got %s, %v", text, err)
	}
}

// TestColouredLogs: what colours a log does not hide a secret, and is not in the bundle.
func TestColouredLogs(t *testing.T) {
	t.Parallel()
	b := collected(t, Part{Name: "one", Collect: func(_ context.Context, f *Files) error {
		f.Log("a.log", []byte("\x1b[36mINFO\x1b[0m login \x1b[36mpassword\x1b[0m=hunter2\x1b]0;title\x07"))
		return nil
	}})
	if got := b.files[0].text; got != "INFO login password=[removed]" {
		t.Errorf("got %q", got)
	}
}

// TestKeepEnv keeps values of variables, but no passwords.
func TestKeepEnv(t *testing.T) {
	t.Parallel()
	r := newRedactor(true)
	document := r.tree("", map[string]any{"env": []any{"MODE=production", "DB_PASSWORD=hunter22", "URL=http://u:hunter33@h"}})
	if diff := cmp.Diff(map[string]any{"env": []any{"MODE=production", "DB_PASSWORD=[removed]", "URL=http://[removed]@h"}}, document); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzRedaction: no text makes it fail, and what it leaves it leaves again.
func FuzzRedaction(f *testing.F) {
	for _, text := range []string{"", "a=b", `{"env":["A=b"],"password":1}`, "-----BEGIN PRIVATE KEY-----", "password: |\n  x", "\xff--token x", `{"annotations":{"a":"{\"token\":\"x\"}"}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := newRedactor(false)
		for _, kind := range []form{prose, settings, command} {
			once := r.text(text, kind)
			if twice := r.text(once, kind); strings.Count(twice, removed) < strings.Count(once, removed) {
				t.Errorf("%q became %q", once, twice)
			}
		}
		document, err := decode([]byte(text))
		if err == nil {
			document = r.tree("", document)
		}
		r.learn()
		r.againText(text)
		if _, err := encode(r.againTree("", document), ""); err != nil {
			t.Error(err)
		}
	})
}
