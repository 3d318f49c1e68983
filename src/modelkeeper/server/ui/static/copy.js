// Buttons that copy a piece of text.
for (const button of document.querySelectorAll("[data-copy]")) {
  const before = button.textContent;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // without TLS there is no clipboard; Ctrl-C works
      button.textContent = "Press Ctrl-C";
    }
    setTimeout(() => (button.textContent = before), 2000);
  });
}
