// Program kms-plugin is a KMS plugin for the tests of encryption at rest: the gRPC service of k8s.io/kms/pkg/service,
// over keys derived from their ids. Whatever must change while it runs stands in a JSON file, read at each call:
//
//	{"key": "2", "delay": "5s", "health": "ok", "refuse": ["1"], "annotations": {"version.encryption.example": "1"}}
//
// key: the id of the key that encrypts. delay: how long each call takes. refuse: ids of keys that do not decrypt.
//
// With "protocol": "v1beta1", it serves KMS v1 instead; "version" is what its Version tells.
//
// Usage: kms-plugin SOCKET CONTROL-FILE. It prints one line per call: its name, and the id of the key.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kms/apis/v1beta1"
	"k8s.io/kms/pkg/service"
)

type control struct {
	Key         string            `json:"key"`
	Delay       string            `json:"delay"`
	Health      string            `json:"health"`
	Refuse      []string          `json:"refuse"`
	Annotations map[string]string `json:"annotations"`
	Protocol    string            `json:"protocol"`
	Version     string            `json:"version"`
}

type plugin struct{ file string }

func (p plugin) control(ctx context.Context, call string) (control, error) {
	found := control{Key: "1", Health: "ok"}
	data, err := os.ReadFile(p.file)
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return found, err
	}
	fmt.Println(call, found.Key)
	if found.Delay != "" {
		delay, err := time.ParseDuration(found.Delay)
		if err != nil {
			return found, err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
	return found, nil
}

func sealer(id string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte("key of the tests " + id))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (p plugin) Status(ctx context.Context) (*service.StatusResponse, error) {
	found, err := p.control(ctx, "status")
	if err != nil {
		return nil, err
	}
	return &service.StatusResponse{Version: "v2", Healthz: found.Health, KeyID: found.Key}, nil
}

func (p plugin) Encrypt(ctx context.Context, uid string, data []byte) (*service.EncryptResponse, error) {
	found, err := p.control(ctx, "encrypt")
	if err != nil {
		return nil, err
	}
	aead, err := sealer(found.Key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	annotations := map[string][]byte{}
	for name, value := range found.Annotations {
		annotations[name] = []byte(value)
	}
	return &service.EncryptResponse{
		Ciphertext: aead.Seal(nonce, nonce, data, []byte(found.Key)), KeyID: found.Key, Annotations: annotations,
	}, nil
}

func (p plugin) Decrypt(ctx context.Context, uid string, request *service.DecryptRequest) ([]byte, error) {
	found, err := p.control(ctx, "decrypt")
	if err != nil {
		return nil, err
	}
	if slices.Contains(found.Refuse, request.KeyID) {
		return nil, fmt.Errorf("key %q is not to be had", request.KeyID)
	}
	for name, value := range found.Annotations {
		if string(request.Annotations[name]) != value {
			return nil, fmt.Errorf("annotation %q is %q", name, request.Annotations[name])
		}
	}
	aead, err := sealer(request.KeyID)
	if err != nil {
		return nil, err
	}
	if len(request.Ciphertext) < aead.NonceSize() {
		return nil, errors.New("the ciphertext is too short")
	}
	size := aead.NonceSize()
	return aead.Open(nil, request.Ciphertext[:size], request.Ciphertext[size:], []byte(request.KeyID))
}

// pluginV1 is the same plugin with the first protocol. Its ciphertext begins with the length of the key's id and the id.
type pluginV1 struct {
	v1beta1.UnsafeKeyManagementServiceServer
	plugin
}

func (p pluginV1) Version(ctx context.Context, request *v1beta1.VersionRequest) (*v1beta1.VersionResponse, error) {
	found, err := p.control(ctx, "version")
	if err != nil {
		return nil, err
	}
	version := found.Version
	if version == "" {
		version = request.Version
	}
	return &v1beta1.VersionResponse{Version: version, RuntimeName: "kms-plugin", RuntimeVersion: "0.0.1"}, nil
}

func (p pluginV1) Encrypt(ctx context.Context, request *v1beta1.EncryptRequest) (*v1beta1.EncryptResponse, error) {
	answer, err := p.plugin.Encrypt(ctx, "", request.Plain)
	if err != nil {
		return nil, err
	}
	cipher := append([]byte{byte(len(answer.KeyID))}, answer.KeyID...)
	return &v1beta1.EncryptResponse{Cipher: append(cipher, answer.Ciphertext...)}, nil
}

func (p pluginV1) Decrypt(ctx context.Context, request *v1beta1.DecryptRequest) (*v1beta1.DecryptResponse, error) {
	if len(request.Cipher) == 0 || len(request.Cipher) <= int(request.Cipher[0]) {
		return nil, errors.New("the ciphertext is too short")
	}
	end := 1 + int(request.Cipher[0])
	inner := &service.DecryptRequest{KeyID: string(request.Cipher[1:end]), Ciphertext: request.Cipher[end:]}
	plain, err := p.plugin.Decrypt(ctx, "", inner)
	if err != nil {
		return nil, err
	}
	return &v1beta1.DecryptResponse{Plain: plain}, nil
}

func serveV1(socket string, control plugin) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterKeyManagementServiceServer(server, pluginV1{plugin: control})
	return server.Serve(listener)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kms-plugin SOCKET CONTROL-FILE")
		os.Exit(2)
	}
	_ = os.Remove(os.Args[1])
	var found control
	if data, err := os.ReadFile(os.Args[2]); err == nil {
		_ = json.Unmarshal(data, &found)
	}
	if found.Protocol == "v1beta1" {
		fmt.Println("serving", os.Args[1])
		fmt.Fprintln(os.Stderr, serveV1(os.Args[1], plugin{os.Args[2]}))
		os.Exit(1)
	}
	server := service.NewGRPCService(os.Args[1], 10*time.Second, plugin{os.Args[2]})
	fmt.Println("serving", os.Args[1])
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
