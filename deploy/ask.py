"""What does a streamed question through the official `openai` SDK look like?

Run it with the environment's Python: `.venv/bin/python deploy/ask.py --key KEY "Your question"`.
"""

import argparse
import sys

from openai import OpenAI, OpenAIError


def main() -> int:
    """Print the answer token by token; returns the exit status."""
    parser = argparse.ArgumentParser(description="Ask the gateway a question and stream the answer.")
    parser.add_argument("question")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--key", required=True, help="the gateway key")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    try:
        with OpenAI(base_url=options.base_url, api_key=options.key) as client:
            answer = _ask(client, options.model, options.question, options.max_tokens)
    except OpenAIError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0 if answer else 1


def _ask(client: OpenAI, model: str, question: str, max_tokens: int) -> str:
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
    )
    answer = ""
    for chunk in stream:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            answer += text
            print(text, end="", flush=True)
    print()
    return answer


if __name__ == "__main__":
    sys.exit(main())
