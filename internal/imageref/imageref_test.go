package imageref

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		name, wanted            string
		matches, sameRepository bool
	}{
		{"docker.io/library/busybox:latest", "busybox", true, true},
		{"busybox:1.36", "busybox", true, true},
		{"busybox:1.36", "docker.io/library/busybox:1.36", true, true},
		{"busybox:1.36", "busybox:1.37", false, true},
		{"busybox" + digest, "busybox", true, true},
		{"busybox" + digest, "busybox:1.36", false, true},
		{"quay.io/busybox:1.36", "busybox", false, false},
		{"<none>:<none>", "busybox", false, false},
		{"busybox:1.36", "Not A Name", false, false},
	} {
		if got := Matches(test.name, test.wanted); got != test.matches {
			t.Errorf("%s means %s: got %t", test.wanted, test.name, got)
		}
		if got := SameRepository(test.name, test.wanted); got != test.sameRepository {
			t.Errorf("%s and %s in one repository: got %t", test.wanted, test.name, got)
		}
	}
}
