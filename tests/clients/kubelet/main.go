// A kubelet stand-in for tests: exec, attach and portforward by the code that kubelets and container runtimes use
// (k8s.io/cri-streaming). Commands run as processes of this machine; port-forward connects to ports of 127.0.0.1.
//
//	kubelet CERT KEY [translating]     prints its port, and serves until its standard input ends
//
// With translating it understands WebSockets itself, as a kubelet with the feature ExtendWebSocketsToKubelet does.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	utilexec "k8s.io/utils/exec"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

type containers struct{}

// exitError makes the end of a process known to remotecommand.
type exitError struct {
	error
	code int
}

func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return e.code }

var _ utilexec.ExitError = exitError{}

func ended(err error) error {
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		return err
	}
	code := failed.ExitCode()
	if state, ok := failed.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		code = 128 + int(state.Signal())
	}
	return exitError{fmt.Errorf("exit status %d", code), code}
}

func openTerminal() (*os.File, *os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	var number, unlocked int32
	syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number)))
	syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlocked)))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	return master, slave, err
}

func inTerminal(cmd *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		return err
	}
	slave.Close()
	go func() {
		for size := range resize {
			window := [4]uint16{size.Height, size.Width}
			syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&window)))
		}
	}()
	if in != nil {
		go io.Copy(master, in)
	}
	io.Copy(out, master)
	return ended(cmd.Wait())
}

func (containers) ExecInContainer(ctx context.Context, name, uid, container string, command []string, in io.Reader,
	out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// A killed kubelet takes its commands along. The signal follows the thread that starts the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if tty {
		return inTerminal(cmd, in, out, resize)
	}
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	if in != nil {
		pipe, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			io.Copy(pipe, in)
			pipe.Close()
		}()
	}
	return ended(cmd.Run())
}

func (c containers) AttachContainer(ctx context.Context, name, uid, container string, in io.Reader,
	out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return c.ExecInContainer(ctx, name, uid, container, []string{"cat"}, in, out, err, tty, resize, 0)
}

func (containers) PortForward(ctx context.Context, name, uid string, port int32, stream io.ReadWriteCloser) error {
	target, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer target.Close()
	done := make(chan struct{}, 2)
	go func() { io.Copy(stream, target); done <- struct{}{} }()
	go func() { io.Copy(target, stream); target.(*net.TCPConn).CloseWrite(); done <- struct{}{} }()
	<-done
	<-done
	return nil
}

func serve(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	const idle, creation = 4 * time.Hour, 30 * time.Second
	if parts[0] == "portForward" {
		options, err := portforward.NewV4Options(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, req, containers{}, parts[2], "", options, idle, creation,
			portforward.SupportedProtocols)
		return
	}
	if parts[0] == "containerLogs" {
		logOf(w, req)
		return
	}
	if len(parts) == 4 && parts[3] == "missing" {
		http.Error(w, `container not found ("missing")`, http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	protocols := remotecommand.SupportedStreamingProtocols
	if parts[0] == "exec" {
		remotecommand.ServeExec(w, req, containers{}, parts[2], "", parts[3], req.URL.Query()["command"], options, idle,
			creation, protocols)
		return
	}
	remotecommand.ServeAttach(w, req, containers{}, parts[2], "", parts[3], options, idle, creation, protocols)
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	var handler http.Handler = http.HandlerFunc(serve)
	if len(os.Args) > 3 && os.Args[3] == "translating" {
		if handler, err = newTranslating(); err != nil {
			panic(err)
		}
	}
	go http.Serve(listener, handler)
	io.Copy(io.Discard, os.Stdin)
}
