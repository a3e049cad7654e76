package stream

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"strings"
)

// stateEstablished is the code of an open connection in /proc/net/tcp.
const stateEstablished = "01"

// peerLeft says whether the process at the other end of a connection within
// this machine has closed it. When this end does not read, the kernel holds the
// end of the connection back behind the data that waits; but the peer's socket
// is in the same table as ours, and its state tells. Peers on other machines
// never count as gone.
func peerLeft(c *net.TCPConn) bool {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return false
	}
	table := "/proc/net/tcp6"
	if local.IP.To4() != nil {
		table = "/proc/net/tcp"
	}
	f, err := os.Open(table)
	if err != nil {
		return false
	}
	defer f.Close()
	ours, theirs := tableAddress(local), tableAddress(remote)
	for scan := bufio.NewScanner(f); scan.Scan(); {
		row := strings.Fields(scan.Text())
		if len(row) > 3 && row[1] == theirs && row[2] == ours {
			return row[3] != stateEstablished
		}
	}
	return remote.IP.IsLoopback() // its socket is gone altogether
}

// tableAddress writes an address as the kernel does: each word of four bytes as
// a number of this machine, then the port.
func tableAddress(a *net.TCPAddr) string {
	ip := a.IP.To4()
	if ip == nil {
		ip = a.IP.To16()
	}
	words := make([]byte, len(ip))
	for i := 0; i+4 <= len(ip); i += 4 {
		binary.BigEndian.PutUint32(words[i:], binary.NativeEndian.Uint32(ip[i:]))
	}
	port := binary.BigEndian.AppendUint16(nil, uint16(a.Port))
	return strings.ToUpper(hex.EncodeToString(words) + ":" + hex.EncodeToString(port))
}
